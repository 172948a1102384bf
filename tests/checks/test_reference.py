"""Layers that moved or are new since the reference."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from leakgauge.checks import inspect_model


def test_is_relative_to_the_size_of_the_layer(score, dense):
    before = dense(40, 32, 10)
    now = copy.deepcopy(before)
    assert set(score("drift", now, reference=before).values()) == {0.0}
    with torch.no_grad():
        now[0].weight[:] = 4 * before[0].weight
        now[0].bias[:] = 4 * before[0].bias
    size = torch.cat([p.detach().flatten() for p in before[0].parameters()]).norm()
    wanted = float(3 * size / (size + 0.01 * (40 * 32 + 32) ** 0.5))
    assert score("drift", now, reference=before) == {"0": pytest.approx(wanted), "2": 0.0}


@pytest.mark.parametrize(("bias", "severity"), [(10.0, "caution"), (1000.0, "high")])
def test_far_is_a_caution_and_absurdly_far_is_grave(dense, bias, severity):
    before = dense(40, 32, 10)
    now = copy.deepcopy(before)
    with torch.no_grad():
        now[0].bias += bias
    (said,) = [s for s in inspect_model(now, reference=before) if s.id == "drift"]
    assert (said.layer, said.severity) == ("0", severity)


def test_running_statistics_and_layers_that_the_reference_lacks_are_left_out(score):
    before = {"bn.running_mean": torch.zeros(3), "bn.weight": torch.ones(3), "bn.bias": torch.zeros(3)}
    now = {**before, "bn.running_mean": torch.full((3,), 90.0), "new.weight": torch.randn(4, 3)}
    assert score("drift", now, reference=before) == {"bn": 0.0}


def test_the_same_tensors_score_zero(score, dense):
    assert set(score("other-architecture", dense(20, 16, 5), reference=dense(20, 16, 5, seed=1)).values()) == {0.0}


def test_a_module_in_front_is_grave_and_named(dense):
    before = dense(20, 16, 5)
    now = nn.Sequential(nn.Linear(20, 20), *before)
    (said,) = [s for s in inspect_model(now, reference=before) if s.id == "other-architecture"]
    assert said.severity == "high"
    assert "tensors are new" in said.evidence
    assert "1.weight" in said.evidence


def test_needs_a_reference(score, dense):
    assert score("other-architecture", dense(20, 16, 5)) == {}
