"""A last layer of zeros: a start like any other, or a way to count labels."""

from __future__ import annotations

import torch

from leakgauge.checks import inspect_model, tampered


def test_a_last_layer_of_zeros_is_a_caution(dense, score):
    model = dense(20, 16, 5)
    assert score("empty-layer", model) == {"2": 0.0}
    torch.nn.init.zeros_(model[2].weight)
    (said,) = [s for s in inspect_model(model) if s.id == "empty-layer"]
    assert said.severity == "caution"
    assert not tampered(inspect_model(model))


def test_one_that_had_weights_in_the_last_round_is_grave(dense):
    before, now = dense(20, 16, 5), dense(20, 16, 5)
    torch.nn.init.zeros_(now[2].weight)
    assert [s.layer for s in inspect_model(now, reference=before) if s.id == "emptied-layer"] == ["2"]
    assert not [s for s in inspect_model(now, reference=now) if s.id == "emptied-layer"]
