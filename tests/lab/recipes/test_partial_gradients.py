"""What follows from a part of an update: all of it if the picture was found, nothing if noise stands for it."""

import pytest
import torch

from leakgauge.lab.recipes.partial_gradients.recipe import InferredGradient, inferred_figures


def test_the_true_gradient_is_inferred_without_error_and_its_opposite_is_not():
    true = {"a": torch.randn(3, 4), "b": torch.randn(3, 2, 2)}
    other = {name: -tensor for name, tensor in true.items()}
    found = inferred_figures(true, {**true, "seen": torch.zeros(3, 1)}, other)
    assert found["inferred_cosine"] == pytest.approx((1, 1, 1))
    assert found["inferred_error"] == (0, 0, 0)
    assert found["inferred_cosine_blind"] == pytest.approx((-1, -1, -1))
    assert inferred_figures(true, other, other)["inferred_error"] == pytest.approx((2, 2, 2))


def test_it_equals_a_loop_over_victims():
    true, mine = ({"a": torch.randn(3, 4), "b": torch.randn(3, 2, 2)} for _ in range(2))
    found = inferred_figures(true, mine, mine)
    for t in range(3):
        x, y = (torch.cat([each["a"][t], each["b"][t].flatten()]).double() for each in (true, mine))
        assert found["inferred_cosine"][t] == pytest.approx(float(x @ y / x.norm() / y.norm()))
        assert found["inferred_error"][t] == pytest.approx(float((x - y).norm() / x.norm()))


def test_who_finds_the_picture_has_the_unseen_layers_too():
    easy = InferredGradient(
        model="lenet-dlg:filters=6", data="digits", attack="dlg:restarts=1,steps=25", shared_layers="first:3", victims=3
    )
    found = easy.figures("cpu", None, lambda *_: None)
    assert min(found["inferred_cosine"]) > 0.99
    assert max(found["inferred_error"]) < 0.1
    blind = InferredGradient(
        model="lenet-dlg:filters=6", data="digits", attack="dlg:restarts=1,steps=1", shared_layers="conv1", victims=3
    ).figures("cpu", None, lambda *_: None)
    assert sum(blind["inferred_error"]) > sum(found["inferred_error"])


def test_with_batchnorm_its_layer_can_be_the_part_that_is_seen():
    part = InferredGradient(
        model="lenet-dlg:filters=6",
        data="digits",
        attack="dlg:restarts=1,steps=2",
        shared_layers="conv1.norm",
        defense="batchnorm-only",
        batchnorm="train",
        victims=2,
    )
    assert len(part.figures("cpu", None, lambda *_: None)["inferred_cosine"]) == 2
    assert part.resized(5).size == 5
