"""A last layer in which next to no class has weights."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_one_class_that_speaks_alone_is_found(score, dense, classes):
    model = dense(40, 32, classes)
    assert score("silent-classes", model)["2"] < 0.5
    with torch.no_grad():
        model[2].weight[:] = 1e-4 * model[2].weight
        model[2].weight[1] = 0.5
    assert score("silent-classes", model)["2"] > 0.99


def test_one_weight_alone_is_found(score, dense):
    model = dense(40, 32, 10)
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].weight[3, 5] = 300
    assert score("silent-classes", model)["2"] == 1


def test_a_last_layer_that_starts_at_zero_is_not_judged(score, dense):
    model = dense(40, 32, 10)
    torch.nn.init.zeros_(model[2].weight)
    assert score("silent-classes", model) == {}


def test_classes_that_pruning_emptied_are_not_judged(score, dense, pruned):
    for seed in range(20):
        found = score("silent-classes", pruned(dense(40, 5, 10, seed=seed), 0.9))
        assert found.get("2", 0) < 0.95
