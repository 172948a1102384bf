"""Own samples whose gradients dominate, and units that fire for one class."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.checks import scores
from leakgauge.types import Batch, DataSpec

TABLE = DataSpec("table", (12,), 4, "tabular")


@pytest.fixture
def probe() -> Batch:
    torch.manual_seed(1)
    return Batch(torch.rand(1, 8, 12), torch.arange(8)[None] % 4)


def test_equals_a_loop_over_the_samples(score, dense, probe):
    model = dense(12, 16, 4)
    loud = []
    for x, y in zip(probe.inputs[0], probe.labels[0], strict=True):
        logits = model(x[None])
        error = (logits.softmax(-1) - F.one_hot(y, 4)).norm()
        grads = torch.autograd.grad(F.cross_entropy(logits, y[None]), list(model[0].parameters()))
        loud.append(sum(g.square().sum() for g in grads) / error.square())
    wanted = torch.stack(loud).detach().log10()
    found = score("dominant-sample", model, TABLE, probe)
    assert found == {"0": pytest.approx(float(wanted.max() - wanted.median()), abs=1e-4)}


def test_a_class_that_is_fished_for_dominates(score, dense, probe):
    model = dense(12, 16, 4)
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].weight[1] = 0.5
        model[2].bias[:] = torch.tensor([1000.0, 0.0, 1000.0, 1000.0])
    assert score("dominant-sample", model, TABLE, probe)["0"] == 12


def test_samples_that_are_learnt_do_not_make_the_others_dominate(score, dense, probe):
    """Their gradients are small because their errors are, not because a layer holds them back."""
    model = dense(12, 16, 4)
    rule = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(100):
        rule.zero_grad()
        F.cross_entropy(model(probe.inputs[0, :7]), probe.labels[0, :7]).backward()
        rule.step()
    assert score("dominant-sample", model, TABLE, probe).get("0", 0) < 3


def test_behind_a_last_layer_of_zeros_there_is_nothing_to_compare(score, dense, probe):
    model = dense(12, 16, 4)
    torch.nn.init.zeros_(model[2].weight)
    assert score("dominant-sample", model, TABLE, probe) == {}


def linear() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    return model


def share(sizes: list[float]) -> dict[str, float]:
    """Of a model that gives 1/2 to both classes: a sample's gradient has the norm sqrt((|x|^2 + 1) / 2)."""
    inputs = torch.zeros(1, len(sizes), 3)
    inputs[0, :, 0] = torch.tensor(sizes).square().sub(1).clamp_min(0).sqrt()
    samples = Batch(inputs, torch.zeros(1, len(sizes), dtype=torch.long))
    return dict(scores(linear(), samples=samples)["dominated-gradients"])


def test_the_share_is_that_of_the_loudest_eighth():
    assert share([9.0, 1, 1, 1, 1, 1, 1, 1])["0"] == pytest.approx(9 / 16)
    assert share([4.0, 4.0] + [1.0] * 14)["0"] == pytest.approx(8 / 22)
    assert share([2.0] * 8)["0"] == pytest.approx(1 / 8)


def test_few_samples_or_none_say_nothing():
    assert share([2.0] * 3) == {}
    assert scores(linear())["dominated-gradients"] == {}


SPEC = DataSpec("table", (6,), 6, "tabular")
ONE_EACH = Batch(torch.eye(6)[None], torch.arange(6)[None])


def test_is_the_share_of_active_units_that_one_class_activates(score, dense):
    model = dense(6, 20, 6)
    with torch.no_grad():
        model[0].bias.zero_()
        model[0].weight[:] = -1.0
        model[0].weight[:9, 0] = 1.0  # fire for sample 0 alone
        model[0].weight[9:12, :2] = 1.0  # fire for two; the others never do
    assert score("selective-units", model, SPEC, ONE_EACH)["0"] == 9 / 12


def test_needs_samples_and_a_linear_layer_that_sees_them(score, dense, built, grey):
    assert score("selective-units", dense(6, 20, 6), SPEC) == {}
    pictures = Batch(torch.rand(1, 6, *grey.shape), torch.arange(6)[None])
    assert score("selective-units", built("lenet-dlg"), grey, pictures) == {}
