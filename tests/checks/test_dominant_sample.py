"""Per-sample gradients of the client's own samples, against a plain loop."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from leakgauge.types import Batch, DataSpec

SPEC = DataSpec("table", (12,), 4, "tabular")


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
    found = score("dominant-sample", model, SPEC, probe)
    assert found == {"0": pytest.approx(float(wanted.max() - wanted.median()), abs=1e-4)}


def test_a_class_that_is_fished_for_dominates(score, dense, probe):
    model = dense(12, 16, 4)
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].weight[1] = 0.5
        model[2].bias[:] = torch.tensor([1000.0, 0.0, 1000.0, 1000.0])
    assert score("dominant-sample", model, SPEC, probe)["0"] == 12


def test_samples_that_are_learnt_do_not_make_the_others_dominate(score, dense, probe):
    """Their gradients are small because their errors are, not because a layer holds them back."""
    model = dense(12, 16, 4)
    rule = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(100):
        rule.zero_grad()
        F.cross_entropy(model(probe.inputs[0, :7]), probe.labels[0, :7]).backward()
        rule.step()
    assert score("dominant-sample", model, SPEC, probe).get("0", 0) < 3


def test_behind_a_last_layer_of_zeros_there_is_nothing_to_compare(score, dense, probe):
    model = dense(12, 16, 4)
    torch.nn.init.zeros_(model[2].weight)
    assert score("dominant-sample", model, SPEC, probe) == {}
