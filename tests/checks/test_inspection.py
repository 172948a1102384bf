"""All checks together: clean models pass, every server of the house is found, and the numbers behind are there."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from leakgauge import catalog
from leakgauge.checks import Thresholds, inspect_model, scores, tampered
from leakgauge.checks.inspection import checks, judge, measure
from leakgauge.data import load, public_batch
from leakgauge.errors import BadInput
from leakgauge.federation.rounds import train
from leakgauge.types import Batch, Training

DIGITS = load("digits", "train")
PICTURES = load("photos32", "train")
CLEAN = [
    "lenet-dlg",
    "lenet-dlg:init=default,activation=relu",
    "mlp",
    "mlp:hidden=5",
    "mlp:hidden=500",
    "resnet20:width=4",
]
SENT = [  # (server with its fields, model, data)
    ("imprint:bins=16", "lenet-dlg", DIGITS),
    ("imprint:bins=32,variant=sparse", "mlp:hidden=5", DIGITS),
    ("trap-weights", "mlp", DIGITS),
    ("class-fishing:target=3", "lenet-dlg", DIGITS),
    ("class-fishing:target=3", "mlp:hidden=5", DIGITS),
    ("feature-fishing:target=3,queries=1", "lenet-dlg", DIGITS),
    ("mkor:parameters=naive", "vgg16-mkor:width=8,hidden=64", PICTURES),
    ("mkor:parameters=naive,noise=0.001", "vgg16-mkor:width=8,hidden=64", PICTURES),
    ("mkor:parameters=inconspicuous,noise=0.001,pair_noise=0.01", "vgg16-mkor:width=8,hidden=64", PICTURES),
    ("mkor:parameters=inconspicuous", "lenet5-mkor", PICTURES),
]


@pytest.mark.parametrize("spec", CLEAN)
@pytest.mark.parametrize("rounds", [0, 1, 20])
def test_clean_models_raise_no_alarm(built, pruned, quantized, spec, rounds):
    """Fresh and trained, then with zero biases, rounded or without most of their weights."""
    model = train(built(spec, data=DIGITS.spec), DIGITS, Training(rounds=rounds, clients=4), seed=0)
    probe = public_batch(DIGITS, 8, seed=1)
    assert not tampered(inspect_model(model, DIGITS.spec, probe))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    assert not tampered(inspect_model(model, DIGITS.spec, probe))
    assert not tampered(inspect_model(quantized(model, 4)))
    assert not tampered(inspect_model(pruned(model, 0.9)))


@pytest.mark.parametrize(("server", "spec", "data"), SENT, ids=[f"{s[0]}-{s[1]}" for s in SENT])
def test_every_server_is_found_by_the_weights_alone(built, server, spec, data):
    model = built(spec, data=data.spec)
    sent = catalog.build("attacks", server).prepare(model, data.spec, public_batch(data, 64, seed=0))
    assert not tampered(inspect_model(model, data.spec))
    assert tampered(inspect_model(sent, data.spec))
    assert tampered(inspect_model(sent.state_dict()))


def test_a_checkpoint_alone_gives_what_the_model_gives(built):
    model = built("mlp")
    weights = {name: tensor for name, tensor in scores(model.state_dict()).items() if tensor}
    assert weights == {name: tensor for name, tensor in scores(model).items() if tensor}


def test_scores_are_finite_and_there_for_every_check_even_where_nothing_is_wrong(built):
    model = built("mlp", data=DIGITS.spec)
    found = scores(model, DIGITS.spec, public_batch(DIGITS, 8, seed=0), reference=built("mlp", 1, DIGITS.spec))
    assert list(found) == list(checks())
    for check, layers in found.items():
        assert layers or check in ("copy-kernels", "equal-outgoing"), check  # it has one hidden layer, no convolution
        assert all(math.isfinite(score) for score in layers.values())


def test_thresholds_can_be_chosen_anew_without_measuring_again(built):
    measured = measure(built("mlp"))
    assert not tampered(judge(measured))
    strict = judge(measured, Thresholds(huge_links=1.5))
    assert [s.id for s in strict if s.severity == "high"] == ["huge-links"]
    assert strict[0].threshold == 1.5


def test_nothing_is_changed_and_no_random_number_is_drawn(built):
    model = built("lenet-dlg", data=DIGITS.spec).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    inspect_model(model, DIGITS.spec, public_batch(DIGITS, 8, seed=0))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_cannot_be_inspected_is_refused(dense):
    model = dense(6, 8, 3)
    batch = Batch(torch.rand(2, 4, 6), torch.zeros(2, 4, dtype=torch.long))
    with pytest.raises(BadInput, match="T = 1"):
        inspect_model(model, samples=batch)
    with pytest.raises(BadInput, match="tensors alone"):
        inspect_model(model.state_dict(), samples=batch.take([0]))
    with pytest.raises(BadInput, match="weight tensor"):
        inspect_model({"count": torch.ones(3)})
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    with pytest.raises(BadInput, match=r"'0\.weight' must be finite"):
        inspect_model(model)


def test_recurrent_and_normalising_layers_are_taken_as_they_come():
    model = nn.ModuleDict({"a": nn.LSTM(20, 16), "b": nn.LayerNorm(16), "c": nn.Embedding(30, 16)})
    assert not tampered(inspect_model(model))
