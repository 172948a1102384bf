"""Biases that no input can outweigh."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def test_is_measured_against_what_inputs_can_add(score):
    model = nn.Sequential(nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([[1.0, -1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
        model[0].bias[:] = torch.tensor([8.0, -1000.0])
    assert score("huge-bias", model)["0"] == pytest.approx(1000)
    with torch.no_grad():
        model[0].bias[1] = 0
    assert score("huge-bias", model)["0"] == pytest.approx(8 / 4)


def test_looks_at_convolutions_and_normalisations_too(score):
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3))
    with torch.no_grad():
        model[1].bias[2] = 500
    found = score("huge-bias", model)
    assert found["0"] < 1
    assert found["1"] == pytest.approx(250)
