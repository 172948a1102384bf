"""Weights that drown the rest of their layer."""

from __future__ import annotations

import pytest
import torch


def test_several_links_far_above_the_rest_are_found(score, dense):
    model = dense(40, 64, 32, 10)
    assert score("huge-links", model)["2"] < 5
    with torch.no_grad():
        model[2].weight[torch.arange(4), torch.arange(4)] = 200 * model[2].weight.std()
    assert score("huge-links", model)["2"] > 100


def test_three_are_not_several(score, dense):
    model = dense(40, 64, 32, 10)
    with torch.no_grad():
        model[2].weight[0, :3] = 100
    assert score("huge-links", model)["2"] < 5


def test_is_the_fourth_largest_over_the_median_wherever_it_stands(score):
    weight = torch.ones(3, 40)
    weight[1, :4] = torch.tensor([9.0, -8.0, 7.0, -6.0])
    found = score("huge-links", {"a.weight": weight, "b.weight": torch.randn(5, 3)})
    assert found["a"] == pytest.approx(6)
