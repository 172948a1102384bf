"""Rows of linear layers: multiples, up to noise, with stacked biases, and traps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from leakgauge.checks import inspect_model


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


def test_equal_columns_show_under_the_layer_that_has_them(score, dense):
    model = dense(40, 32, 24, 10)
    assert score("equal-outgoing", model) == {"2": score("equal-outgoing", model)["2"]}
    assert score("equal-outgoing", model)["2"] < 1
    with torch.no_grad():
        model[2].weight[:] = model[2].weight[:, :1]
    assert score("equal-outgoing", model)["2"] > 6


def test_the_last_layer_and_layers_that_do_not_follow_one_another_are_left_out(score, dense):
    assert score("equal-outgoing", dense(40, 32, 10)) == {}
    assert score("equal-outgoing", {"a.weight": torch.randn(20, 30), "b.weight": torch.randn(20, 40)}) == {}


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
