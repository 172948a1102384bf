"""A tensor that is left out takes no part: not in the distance, not in the norms of a cosine."""

import dataclasses

import pytest
import torch
from leakgauge.matching.muting import muted, muted_names
from torch import nn

from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.precode import Precode
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.problem import puzzle_of
from leakgauge.models import load_model
from leakgauge.types import LocalTraining, threat_model

NET = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2, bias=False)))
NAMES = [name for name, _ in NET.named_parameters()]


@pytest.mark.parametrize(
    ("skip", "meant"),
    [
        ("last", {"2.1.weight"}),
        ("0.bias", {"0.bias"}),
        ("0", {"0.weight", "0.bias"}),
        ("2", {"2.0.weight", "2.0.bias", "2.1.weight"}),
        ("last+0.weight", {"2.1.weight", "0.weight"}),
    ],
)
def test_names_of_tensors_of_layers_and_the_last(skip, meant):
    assert muted_names(NET, NAMES, skip) == meant


def test_a_bottleneck_goes_with_the_layer_behind_it():
    extended = Precode(width=2).prepare(NET)
    names = [name for name, _ in extended.named_parameters()]
    kept = set(names) - muted_names(extended, names, "bottleneck")
    assert kept == {"0.weight", "0.bias", "2.0.weight", "2.0.bias"}
    with pytest.raises(NotApplicable, match="variational bottleneck"):
        muted_names(NET, NAMES, "bottleneck")


def test_mistakes_are_named():
    with pytest.raises(BadInput, match="skip must be one of"):
        muted_names(NET, NAMES, "3.weight")
    with pytest.raises(NotApplicable, match=r"nn\.Linear"):
        muted_names(nn.Conv2d(1, 1, 3), ["weight"], "last")


def puzzle(distance):
    data = load("digits")
    net = load_model("lenet-dlg:filters=3", data.spec, 0)
    batch = draw_victims(data, 2, 1, 0)
    update = client_step(LocalTraining())(net, batch, range(2))
    seen = observe(
        net, update, threat_model("honest-but-curious"), facts_about(net, batch, data.spec, LocalTraining(), None)
    )
    return puzzle_of(seen, batch.labels, distance=distance, prior=lambda _, x, __: x.new_zeros(len(x)))


@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_whatever_stands_in_a_muted_tensor_changes_nothing(distance):
    whole = puzzle(distance)
    spoilt = dataclasses.replace(whole, observed=whole.observed | {"fc.weight": 9 + whole.observed["fc.weight"]})
    z = torch.rand(2, whole.width, generator=torch.Generator().manual_seed(0))
    rows = torch.arange(2)
    for clean, other in zip(
        muted(whole, "last").evaluator(rows)(z), muted(spoilt, "last").evaluator(rows)(z), strict=True
    ):
        assert torch.equal(clean, other)
    assert not torch.equal(whole.evaluator(rows)(z)[0], muted(whole, "last").evaluator(rows)(z)[0])


def test_nothing_skipped_is_the_same_puzzle_and_everything_skipped_is_refused():
    whole = puzzle("l2")
    assert muted(whole, "") is whole
    with pytest.raises(BadInput, match="skip must be some of the tensors"):
        muted(whole, "+".join(whole.observed))
