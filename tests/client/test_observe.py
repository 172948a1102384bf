"""The gate: hidden facts never pass, and an update that does not fit the model is refused in one line."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import batchnorm_statistics, check_update, facts_about, observe
from leakgauge.errors import BadInput, HiddenFact
from leakgauge.models import load_model
from leakgauge.types import Client, Fact, SharedUpdate, threat_model


@pytest.fixture
def seen(model, victims, spec):
    """seen(threat model) -> Observation of two clients."""
    net, batch = model(), victims(2, 3)
    update = fedsgd()(net, batch, (0, 1))
    facts = facts_about(net, batch, spec, Client(), public=victims(1, 5))
    return lambda name: observe(net, update, threat_model(name), facts)


@pytest.mark.parametrize("name", ["honest-but-curious", "eavesdropper", "malicious-parameters+labels"])
def test_exactly_the_facts_of_the_threat_model_pass(seen, name):
    observation = seen(name)
    assert set(observation.revealed) == threat_model(name).facts
    for fact in Fact:
        assert observation.knows(fact) == (fact in threat_model(name).facts)


def test_asking_for_a_hidden_fact_raises_and_names_it(seen):
    with pytest.raises(HiddenFact, match=r"'honest-but-curious' does not reveal 'labels'"):
        seen("honest-but-curious").fact(Fact.LABELS)
    with pytest.raises(HiddenFact, match=r"'eavesdropper' does not reveal 'public-data'"):
        seen("eavesdropper").fact(Fact.PUBLIC_DATA)


def test_oracles_tell_the_truth(seen, victims):
    assert torch.equal(seen("eavesdropper+labels").fact(Fact.LABELS), victims(2, 3).labels)


def test_the_private_inputs_are_nowhere_in_an_observation(seen, victims):
    secret = victims(2, 3).inputs
    observation = seen("honest-but-curious+labels+batchnorm")
    values = [*observation.revealed.values(), *observation.update.tensors.values()]
    assert not any(isinstance(v, torch.Tensor) and v.shape == secret.shape for v in values)


def test_no_public_data_is_no_fact(model, victims, spec):
    facts = facts_about(model(), victims(1, 1), spec, Client(), public=None)
    assert Fact.PUBLIC_DATA not in facts


def spoil(update: SharedUpdate, how: str) -> SharedUpdate:
    tensors = dict(update.tensors)
    if how == "missing":
        del tensors["fc2.bias"]
    elif how == "extra":
        tensors["fc9.bias"] = tensors["fc2.bias"]
    elif how == "shape":
        tensors["fc2.bias"] = tensors["fc2.bias"][:, :-1]
    elif how == "trials":
        tensors["fc2.bias"] = tensors["fc2.bias"][:1]
    elif how == "scalar":
        tensors = {"fc1.weight": torch.tensor(1.0), **{n: t for n, t in tensors.items() if n != "fc1.weight"}}
    elif how == "all scalars":
        tensors = {n: torch.tensor(1.0) for n in tensors}
    elif how in ("nan", "inf"):
        tensors["fc1.weight"] = tensors["fc1.weight"].clone()
        tensors["fc1.weight"][0, 0, 0] = float(how)
    return dataclasses.replace(update, tensors=tensors)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "missing 'fc2.bias'"),
        ("extra", "unknown 'fc9.bias'"),
        ("shape", r"'fc2.bias' must be of shape \(2, 10\) \(trials first\), got \(2, 9\)"),
        ("trials", r"'fc2.bias' must be of shape \(2, 10\)"),
        ("scalar", r"'fc1.weight' must be of shape .* got \(\)"),
        ("all scalars", r"must be of shape .* got \(\)"),
        ("nan", "'fc1.weight' must be finite, got 1 NaN or infinite entries"),
        ("inf", "'fc1.weight' must be finite"),
    ],
)
def test_an_update_that_does_not_fit_is_refused_in_one_line(model, victims, how, message):
    net = model()
    update = spoil(fedsgd()(net, victims(2, 3), (0, 1)), how)
    with pytest.raises(BadInput, match=message) as caught:
        check_update(net, update)
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value)  # and says what to do


def test_an_unknown_kind_of_update_is_refused(model, victims):
    net = model()
    update = dataclasses.replace(fedsgd()(net, victims(1, 1), (0,)), kind="weights")
    with pytest.raises(BadInput, match="gradient or weight_delta, got 'weights'"):
        check_update(net, update)


def test_a_frozen_parameter_is_not_expected(model, victims):
    net = model()
    net.fc1.bias.requires_grad_(False)
    check_update(net, fedsgd()(net, victims(1, 1), (0,)))


def test_batchnorm_statistics_are_each_trials_own(model, victims):
    net, batch = model("resnet20:width=2"), victims(2, 3)
    found = batchnorm_statistics(net, batch.inputs, "train")
    names = [n for n, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)]
    assert sorted(found) == sorted(names)
    first = next(n for n, m in net.named_modules() if isinstance(m, nn.Conv2d))
    conv = dict(net.named_modules())[first]
    normalised = net.normalize(batch.inputs[1]) if hasattr(net, "normalize") else batch.inputs[1]
    features = conv(normalised)  # (N, C, H, W)
    mean, var = found[names[0]]
    torch.testing.assert_close(mean[1], features.mean((0, 2, 3)))
    torch.testing.assert_close(var[1], features.var((0, 2, 3), unbiased=False))
    alone = batchnorm_statistics(net, batch.inputs[1:], "train")
    for name in names:
        torch.testing.assert_close(alone[name][0][0], found[name][0][1])


def test_batchnorm_statistics_follow_the_clients_mode(model, victims):
    """What a deep layer sees depends on how the layers before it normalise."""
    net, batch = model("resnet20:width=2"), victims(1, 3)
    trained, evaluated = (batchnorm_statistics(net, batch.inputs, mode) for mode in ("train", "eval"))
    last = list(trained)[-1]
    assert not torch.allclose(trained[last][1], evaluated[last][1], rtol=0.1)


def test_one_sample_with_one_value_per_channel_is_no_obstacle_in_eval_mode():
    """ResNet-18 shrinks 32 px to one pixel, where torch refuses batch statistics of one sample."""
    from leakgauge.data import draw_victims, load

    photos = load("photos32")
    batch = draw_victims(photos, 1, 1, seed=0)
    net = load_model("resnet18:width=2", photos.spec, seed=0)
    facts = facts_about(net, batch, photos.spec, Client(), None)
    statistics = facts[Fact.BATCHNORM_STATISTICS]
    assert len(statistics) == 20
    assert (statistics["layer4.1.bn2"][1] == 0).all()  # the variance of a single value


def test_a_model_without_batchnorm_has_no_statistics(model, victims):
    assert batchnorm_statistics(model(), victims(1, 1).inputs) == {}
