"""The models of the study are what they say, and differ from one another."""

import torch

from leakgauge.lab.detection.cases import Case, built, clean_cases, tampered_cases


def test_every_state_and_change_is_among_the_clean_models():
    families = {case.family for case in clean_cases(60, 0)}
    assert families >= {"clean, untrained", "clean, after 20 rounds", "clean, pruned", "clean, quantised"}
    assert not any(case.tampered for case in clean_cases(60, 0))


def test_every_server_is_among_the_tampered_models():
    names = {case.server.partition(":")[0] for case in tampered_cases(4, 0)}
    assert names == {"mkor", "class-fishing", "feature-fishing", "imprint", "trap-weights"}


def test_no_two_models_are_the_same_and_a_seed_repeats_them():
    cases = [*clean_cases(20, 3), *tampered_cases(4, 3)]
    assert cases == [*clean_cases(20, 3), *tampered_cases(4, 3)]
    assert len(set(cases)) == len(cases)
    assert clean_cases(20, 4) != clean_cases(20, 3)


def test_pruning_and_quantisation_do_what_they_say():
    plain = Case("", False, "mlp", "digits", 0, "", "", 1)
    pruned = Case("", False, "mlp", "digits", 0, "pruned:0.9", "", 1)
    coarse = Case("", False, "mlp", "digits", 0, "quantised:4", "", 1)
    whole, sparse, steps = (built(case)[0].get_parameter("fc1.weight") for case in (plain, pruned, coarse))
    assert (sparse == 0).float().mean() > 0.89
    assert torch.equal(sparse[sparse != 0], whole[sparse != 0])
    assert len(steps.unique()) <= 15


def test_a_tampered_model_comes_with_samples_of_the_clients_own():
    case = next(c for c in tampered_cases(1, 0) if c.family == "class fishing")
    model, data, samples = built(case)
    assert samples.inputs.shape == (1, 16, *data.shape)
    assert model(samples.inputs[0]).shape == (16, data.classes)
