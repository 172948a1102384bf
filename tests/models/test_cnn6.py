"""Golden counts and shapes of the R-GAP networks (METHODS M8)."""

import pytest
import torch
from torch import nn

from leakgauge.errors import NotApplicable
from leakgauge.models import load_model


@pytest.mark.parametrize(
    ("spec", "classes", "expected"),
    [
        ("cnn6", 1, 125_456),
        ("cnn6", 10, 125_456 + 9 * 3200),
        ("cnn6:bias=true", 10, 125_456 + 9 * 3200 + 10),
        ("cnn6-d", 1, 125_456 - 12 * 16 * 9 - 16 * 36 * 9),  # 16 channels fewer on both sides of the second activation
    ],
)
def test_parameter_count(count, spec, classes, expected):
    assert count(spec, 3, 32, classes) == expected


@pytest.mark.parametrize(("spec", "second"), [("cnn6", 36), ("cnn6-d", 20)])
def test_the_picture_shrinks_as_in_the_paper(image, spec, second):
    model, sizes = load_model(spec, image(), seed=0), []
    x = torch.rand(1, 3, 32, 32)
    for layer in model:
        x = layer(x)
        if isinstance(layer, nn.Conv2d):
            sizes.append(tuple(x.shape[1:3]))
    assert sizes == [(12, 17), (second, 9), (36, 9), (36, 9), (64, 5), (128, 5)]
    assert model.fc.in_features == 3200


def test_only_the_dense_layer_can_have_a_bias(image):
    assert [n for n, _ in load_model("cnn6", image(), seed=0).named_parameters() if n.endswith("bias")] == []
    with_bias = load_model("cnn6:bias=true", image(), seed=0)
    assert [n for n, _ in with_bias.named_parameters() if n.endswith("bias")] == ["fc.bias"]


def test_the_slope_below_zero_is_a_fifth_unless_changed(image):
    below = torch.tensor([-1.0])
    assert load_model("cnn6", image(), seed=0).act1(below).item() == pytest.approx(-0.2)
    assert load_model("cnn6-d:slope=0.5", image(), seed=0).act1(below).item() == pytest.approx(-0.5)


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(1, 8, 3)
    check_twice_differentiable(load_model("cnn6", data, seed=0), data)


def test_tables_are_not_applicable(table):
    with pytest.raises(NotApplicable, match="'cnn6' needs images"):
        load_model("cnn6", table, seed=0)
