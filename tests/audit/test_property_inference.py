"""Property inference (METHODS A13): an obvious property is told, shuffled labels tell nothing, noise hides it."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from leakgauge.audit.property_inference import (
    PropertyInference,
    attackers_carriers,
    candidates,
    fit,
    infer_property,
    update_features,
)
from leakgauge.errors import BadInput, HiddenFact
from leakgauge.types import Scenario

SMALL = Scenario(model="mlp:hidden=16", data="digits", trials=24, batch_size=8)
QUICK = PropertyInference(batches=60, trees=20, public=300)


def ask(prop, scenario=SMALL, **fields):
    return infer_property(scenario, dataclasses.replace(QUICK, property=prop, **fields), device="cpu")


@pytest.fixture(scope="module")
def patched():
    noisy = dataclasses.replace(SMALL, defenses=("gaussian:std=10",))
    return ask("patch:4", noisy, share=1.0)


def test_a_patch_is_told_without_a_defense(patched):
    (row,) = [r for r in patched.rows if r.defense == "none"]
    assert row.attacker == "plain"
    assert row.auc.value > 0.95
    assert row.accuracy.recovered >= 20
    assert row.accuracy.records == 24


def test_shuffled_labels_tell_about_nothing(patched):
    control = patched.rows[0].control
    assert abs(control.value - 0.5) < 0.25
    assert control.low < control.high


def test_behind_much_noise_neither_attacker_tells_it(patched):
    behind = [r for r in patched.rows if r.defense != "none"]
    assert [r.attacker for r in behind] == ["plain", "adaptive"]
    for row in behind:
        assert row.auc.low < 0.6


def test_half_of_the_victims_have_it_whatever_their_number(patched):
    assert sum(patched.has) == 12
    assert patched.has[:2] == (False, True)


def test_a_victim_is_judged_alike_among_fewer():
    many = ask("class:3")
    few = ask("class:3", dataclasses.replace(SMALL, trials=6))
    assert few.rows[0].probabilities == pytest.approx(many.rows[0].probabilities[:6])
    assert ask("class:3").rows[0].probabilities == many.rows[0].probabilities, "the same command, the same answer"


def test_who_knows_the_defense_beats_who_does_not():
    """Pruning leaves a pattern that an attacker sees only if it has pruned its own updates too."""
    pruned = dataclasses.replace(SMALL, defenses=("prune:share=0.9",), trials=40)
    rows = {r.attacker: r for r in ask("class:3", pruned).rows if r.defense != "none"}
    assert rows["adaptive"].auc.value >= rows["plain"].auc.value
    assert rows["adaptive"].auc.value > 0.9


def test_the_attackers_noise_is_never_a_victims(monkeypatch):
    from leakgauge.audit import property_inference

    seen = []

    def noted(self, carriers, size, seeds, role, repeat=False):
        seen.append((role, tuple(seeds)))
        return drawn(self, carriers, size, seeds, role, repeat)

    drawn = property_inference.Pool.draw
    monkeypatch.setattr(property_inference.Pool, "draw", noted)
    ask("class:3", dataclasses.replace(SMALL, defenses=("gaussian:std=0.1",)))
    victims = {s for role, seeds in seen if role == "property/victim" for s in seeds}
    attacker = {s for role, seeds in seen if role == "property/attacker" for s in seeds}
    assert victims
    assert attacker
    assert not victims & attacker


def test_levels_are_those_of_the_paper():
    carriers = attackers_carriers(0.4, 10, 16)
    assert carriers[::2] == [0] * 8
    assert carriers[1::2] == [4, 6, 8, 10] * 2
    assert set(attackers_carriers(0.01, 1, 8)) == {0, 1}


def test_weight_differences_and_batchnorm_statistics_are_read_too():
    local = Scenario.from_mapping({"local": {"kind": "fedavg", "epochs": 2, "batch_size": 4, "lr": 0.1}}).local
    assert ask("class:3", dataclasses.replace(SMALL, local=local)).rows[0].auc.value > 0.9


def test_the_report_is_plain_json_and_says_what_it_rests_on(patched):
    plain = json.loads(json.dumps(patched.as_dict(), allow_nan=False))
    assert plain["chance"] == {"auc": 0.5, "accuracy": 0.5}
    assert plain["seeds"] == list(range(24))
    assert plain["inference"]["property"] == "patch:4"
    assert plain["pools"]["public"]["carry it"] == 300
    assert plain["environment"]["torch"] == torch.__version__
    assert "attacks" not in plain["scenario"]
    assert len(plain["rows"][0]["probabilities"]) == 24


def test_an_attacker_without_public_data_is_refused():
    with pytest.raises(HiddenFact, match="public-data"):
        ask("class:3", dataclasses.replace(SMALL, threat_model="eavesdropper"))


def test_a_batch_larger_than_what_there_is_is_refused():
    with pytest.raises(BadInput, match="that carry it"):
        ask("class:3", dataclasses.replace(SMALL, batch_size=200), share=0.9)


def test_one_victim_is_too_few_to_rank():
    with pytest.raises(BadInput, match="at least 2"):
        ask("class:3", dataclasses.replace(SMALL, trials=1))


# --- features ---------------------------------------------------------------------------------------


def unit(*values):
    row = torch.tensor(values, dtype=torch.float32)
    return row / row.norm()


def test_small_matrices_are_kept_and_kernels_become_their_largest_tap():
    matrix = torch.tensor([[[1.0, -2], [0, 3]]])  # (T, outputs, inputs)
    kernel = torch.tensor([0.0, -4, 1, 2]).reshape(1, 1, 1, 2, 2)
    rows = update_features({"conv.weight": kernel, "conv.bias": torch.full((1, 1), 9.0), "fc.weight": matrix}, "both")
    torch.testing.assert_close(rows[0], unit(4, 1, 2, 0, 3))


@pytest.mark.parametrize(("pooling", "expected"), [("inputs", 100), ("both", 160)])
def test_large_matrices_are_pooled(pooling, expected):
    matrix = torch.zeros(1, 60, 100)
    matrix[0, 7, 3] = -5.0
    row = update_features({"fc.weight": matrix}, pooling)[0]
    assert row.shape == (expected,)
    assert row.nonzero().flatten().tolist() == ([3] if pooling == "inputs" else [3, 107])


def test_kernels_between_many_channels_are_left_out_as_published_and_pooled_otherwise():
    tensors = {"conv.weight": torch.ones(2, 80, 70, 3, 3), "fc.weight": torch.ones(2, 4, 5)}
    assert update_features(tensors, "inputs").shape == (2, 20)
    assert update_features(tensors, "both").shape == (2, 20 + 80 + 70)


@pytest.mark.parametrize("pooling", ["both", "inputs", "energy"])
def test_rows_have_length_one_and_their_scale_does_not_matter(pooling):
    tensors = {"fc.weight": torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))}
    rows = update_features(tensors, pooling)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(update_features({"fc.weight": -7 * tensors["fc.weight"]}, pooling), rows)
    assert torch.equal(update_features({"fc.weight": tensors["fc.weight"][1:2]}, pooling)[0], rows[1])


def test_an_update_of_zeros_and_one_without_matrices_have_features_too():
    assert torch.equal(update_features({"fc.weight": torch.zeros(1, 2, 2)}, "both"), torch.zeros(1, 4))
    torch.testing.assert_close(update_features({"norm.bias": torch.tensor([[3.0, -4]])}, "both")[0], unit(3, 4))


def test_energies_are_of_the_whole_each_column_and_each_row_and_biases_count():
    matrix = torch.tensor([[[3.0, 0], [0, 4]]])
    row = update_features({"fc.weight": matrix, "fc.bias": torch.tensor([[1.0, 7]])}, "energy")[0]
    torch.testing.assert_close(row, unit(2.5, 4.5**0.5, 8**0.5, 4.5**0.5, 8**0.5, 5))
    kernel = torch.full((1, 2, 3, 5, 5), -2.0)
    assert update_features({"conv.weight": kernel}, "energy").shape == (1, 1 + 3 + 2)


def test_best_is_a_choice_between_two():
    assert candidates("best") == ("both", "energy")
    assert candidates("inputs") == ("inputs",)


# --- classifier -------------------------------------------------------------------------------------


def rows(count, shift, seed):
    made = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    has = torch.arange(count) % 2 == 0
    made[has, 2] += shift
    return torch.cat([made, torch.ones(count, 1)], 1), has  # the last feature never changes


def test_a_feature_that_differs_is_found_on_rows_never_seen():
    classifier = fit(*rows(120, 4.0, seed=0), trees=50, seed=0)
    unseen, has = rows(60, 4.0, seed=1)
    assert ((classifier.probability(unseen) > 0.5) == has).double().mean() > 0.85


def test_the_same_seed_grows_the_same_forest_and_a_row_is_judged_alone():
    features, has = rows(80, 1.0, seed=0)
    first, second = (fit(features, has, trees=20, seed=3).probability(features) for _ in range(2))
    assert torch.equal(first, second)
    alone = fit(features, has, trees=20, seed=3).probability(features[5:6])
    assert torch.equal(alone, first[5:6])


def test_the_random_state_of_the_caller_stays_untouched():
    before = np.random.get_state()[1].copy()
    fit(*rows(40, 1.0, seed=0), trees=5, seed=2**40)
    assert (np.random.get_state()[1] == before).all()


def test_its_own_score_tells_a_good_feature_from_none_without_seeing_a_victim():
    good, none = fit(*rows(120, 4.0, seed=0), trees=50, seed=0), fit(*rows(120, 0.0, seed=0), trees=50, seed=0)
    assert good.own_score > 0.85
    assert abs(none.own_score - 0.5) < 0.2


def test_very_few_trees_are_no_reason_to_warn():
    assert 0 <= fit(*rows(40, 1.0, seed=0), trees=1, seed=0).own_score <= 1
