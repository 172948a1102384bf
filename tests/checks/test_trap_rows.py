"""Rows of negative weights and their shrunk, shuffled copies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn


def trap(rows: int, inputs: int, shrink: float, noise: float) -> Tensor:
    half = inputs // 2
    negative = -(0.5 * torch.randn(rows, half)).abs()
    positive = torch.stack([-shrink * row[torch.randperm(half)] for row in negative])
    weight = torch.cat((negative, positive, torch.zeros(rows, inputs - 2 * half)), 1)
    weight = torch.stack([row[torch.randperm(inputs)] for row in weight])
    return weight + noise * torch.randn(rows, inputs)


@pytest.mark.parametrize("inputs", [31, 64, 1000])
@pytest.mark.parametrize(("shrink", "noise"), [(0.95, 0.0), (0.99, 1e-3)])
def test_traps_are_found_at_any_width_and_with_little_noise(score, dense, inputs, shrink, noise):
    model = dense(inputs, 48, 10)
    assert score("trap-rows", model)["0"] < 0.15
    with torch.no_grad():
        model[0].weight[:] = trap(48, inputs, shrink, noise)
    assert score("trap-rows", model)["0"] > 0.7


@pytest.mark.parametrize("start", [nn.init.uniform_, nn.init.normal_, nn.init.orthogonal_])
def test_symmetric_random_rows_are_no_traps(score, dense, start):
    model = dense(5000, 64, 10)
    start(model[0].weight)
    assert score("trap-rows", model)["0"] < 0.2


def test_what_pruning_leaves_is_no_trap(score, dense, pruned):
    """Its magnitudes hardly differ, so sorted they are multiples of one another."""
    for seed in range(5):
        assert score("trap-rows", pruned(dense(200, 64, 10, seed=seed), 0.9)).get("0", 0) < 0.2
