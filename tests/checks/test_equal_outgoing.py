"""Units with the same outgoing weights."""

from __future__ import annotations

import torch


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
