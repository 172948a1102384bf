"""A model with other tensors than the reference."""

from __future__ import annotations

from torch import nn

from leakgauge.checks import inspect_model


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
