"""Exact multiples among the rows of a hidden layer, and nothing else."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("factor", [1.0, -0.7, 30.0])
def test_two_rows_that_are_multiples_show_in_all_their_digits(score, dense, factor):
    model = dense(40, 32, 24, 10)
    assert score("identical-rows", model)["0"] < 1
    with torch.no_grad():
        model[0].weight[7] = factor * model[0].weight[3]
    found = score("identical-rows", model)
    assert found["0"] > 6
    assert found["2"] < 1


def test_a_layer_of_one_value_is_seen(score, dense):
    model = dense(40, 32, 24, 10)
    torch.nn.init.constant_(model[0].weight, 1 / 40)
    assert score("identical-rows", model)["0"] > 6


def test_the_last_layer_is_left_out_since_two_classes_are_opposites_by_training(score, dense):
    assert "2" not in score("identical-rows", dense(40, 32, 2))


def test_what_pruning_leaves_is_not_taken_for_multiples(score, dense, pruned):
    assert score("identical-rows", pruned(dense(30, 128, 10), 0.9)).get("0", 0) < 1  # three weights a row


@pytest.mark.parametrize("bits", [4, 8])
def test_what_rounding_leaves_is_not_taken_for_multiples(score, dense, quantized, bits):
    model = dense(64, 500, 10)
    with torch.no_grad():
        model[0].weight[:400] *= 0.05  # rounds to nothing or to one step
    assert score("identical-rows", quantized(model, bits))["0"] < 1
