"""The bins of an imprint module: one direction, many biases."""

from __future__ import annotations

import torch

from leakgauge.checks import inspect_model


def test_counts_the_rows_of_one_direction_with_different_biases(score, dense):
    model = dense(40, 32, 24, 10)
    assert score("stacked-biases", model)["0"] == 0
    with torch.no_grad():
        model[0].weight[:12] = torch.rand(12, 1) * model[0].weight[0] + 0.0
        model[0].bias[:12] = -torch.arange(12.0) * model[0].weight[:12].norm(dim=1)
    assert score("stacked-biases", model)["0"] == 12


def test_says_that_the_biases_rise_or_fall(dense):
    model = dense(40, 32, 24, 10)
    with torch.no_grad():
        model[0].weight[:] = model[0].weight[0].clone()
        model[0].bias[:] = torch.linspace(3, -3, 32)
    (said,) = [s for s in inspect_model(model) if s.id == "stacked-biases"]
    assert said.severity == "high"
    assert "32 different biases, which rise or fall" in said.evidence


def test_the_same_row_and_bias_twice_is_no_stack(score, dense):
    model = dense(40, 32, 24, 10)
    with torch.no_grad():
        model[0].weight[1], model[0].bias[1] = model[0].weight[0], model[0].bias[0]
    assert score("stacked-biases", model)["0"] == 0
