"""Pairs of rows that are parallel up to noise, against what the layer's own rows suggest."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.1])
def test_negative_multiples_up_to_noise_stick_out(score, dense, noise):
    model = dense(100, 64, 32, 10)
    assert score("parallel-rows", model)["0"] == 0
    with torch.no_grad():
        rows = model[0].weight
        rows[10:20] = -0.8 * rows[:10] + noise * rows.std() * torch.randn(10, 100)
    assert score("parallel-rows", model)["0"] > 0.95


def test_a_common_direction_of_all_rows_does_not(score, dense):
    model = dense(100, 64, 32, 10)
    with torch.no_grad():
        model[0].weight += 1.0  # every cosine is above 0.99
    assert score("parallel-rows", model)["0"] == 0


def test_one_pair_alone_may_be_learnt(score, dense):
    model = dense(100, 64, 32, 10)
    with torch.no_grad():
        model[0].weight[1] = -model[0].weight[0] + 0.1 * model[0].weight[2]
    assert score("parallel-rows", model)["0"] < 0.5
