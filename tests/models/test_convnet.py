"""Golden counts and shapes of the plain convolutional networks (METHODS M6, M8, M10, M14)."""

import pytest
import torch
from torch import nn

from leakgauge.errors import NotApplicable
from leakgauge.models import load_model, parameter_count
from leakgauge.types import DataSpec


@pytest.mark.parametrize(("classes", "expected"), [(10, 2_904_970), (100, 3_112_420)])
def test_parameter_count(count, classes, expected):
    assert count("convnet", 3, 32, classes) == expected


@pytest.mark.parametrize(("classes", "expected"), [(10, 3_495_562), (100, 3_703_012)])
def test_nine_convolutions_have_the_count_of_the_replication(count, classes, expected):
    assert count("convnet9", 3, 32, classes) == expected


def test_nine_are_eight_and_one_more_before_the_last_pooling(image):
    eight, nine = (load_model(f"{name}:width=2", image(), seed=0) for name in ("convnet", "convnet9"))
    kinds = [type(m) for m in eight]
    assert [type(m) for m in nine] == [*kinds[:-3], nn.Conv2d, nn.BatchNorm2d, nn.ReLU, *kinds[-3:]]
    assert nine.fc.in_features == 36 * 2


def test_has_eight_convolutions_and_36_widths_of_features(image):
    model = load_model("convnet:width=2", image(), seed=0)
    assert sum(isinstance(m, nn.Conv2d) for m in model) == 8
    assert model.fc.in_features == 36 * 2


def test_nine_pixels_are_the_least(image):
    assert load_model("convnet:width=2", image(1, 9), seed=0)(torch.rand(1, 1, 9, 9)).shape == (1, 10)
    with pytest.raises(NotApplicable, match="at least 9x9"):
        load_model("convnet", image(1, 8), seed=0)
    with pytest.raises(NotApplicable, match="at least 9x9"):
        load_model("convnet9", image(1, 8), seed=0)


@pytest.mark.parametrize("name", ["convnet", "convnet9"])
def test_twice_differentiable(image, check_twice_differentiable, name):
    data = image(3, 9, 3)
    check_twice_differentiable(load_model(f"{name}:width=2", data, seed=0), data)


@pytest.mark.parametrize(
    ("spec", "classes", "expected"),
    [
        ("cnn6", 1, 125_456),
        ("cnn6", 10, 125_456 + 9 * 3200),
        ("cnn6:bias=true", 10, 125_456 + 9 * 3200 + 10),
        ("cnn6-d", 1, 125_456 - 12 * 16 * 9 - 16 * 36 * 9),  # 16 channels fewer on both sides of the second activation
    ],
)
def test_parameter_count_of_cnn6(count, spec, classes, expected):
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


def test_twice_differentiable_of_cnn6(image, check_twice_differentiable):
    data = image(1, 8, 3)
    check_twice_differentiable(load_model("cnn6", data, seed=0), data)


def test_tables_are_not_applicable(table):
    with pytest.raises(NotApplicable, match="'cnn6' needs images"):
        load_model("cnn6", table, seed=0)


def test_parameter_count_at_the_size_of_the_study():
    faces = DataSpec("faces", (3, 62, 47), 2, "image")
    # 32 x 28 + 64 x 289 + 128 x 577 in the convolutions, then 3072 -> 256 -> 2.
    expected = 896 + 18_496 + 73_856 + (3072 + 1) * 256 + (256 + 1) * 2
    assert parameter_count(load_model("cnn-melis", faces, seed=0)) == expected == 880_450


def test_parameter_count_at_32_pixels(count):
    assert count("cnn-melis", 3, 32, 10) == 227_146


def test_three_convolutions_each_pooled_then_two_dense_layers(image):
    model = load_model("cnn-melis:width=2,hidden=6", image(), seed=0)
    kinds = [type(m) for m in model]
    assert kinds[:9] == [nn.Conv2d, nn.ReLU, nn.MaxPool2d] * 3
    assert [m.out_channels for m in model if isinstance(m, nn.Conv2d)] == [2, 4, 8]
    assert (model.fc1.in_features, model.fc1.out_features) == (8 * 2 * 2, 6)


def test_22_pixels_are_the_least(image):
    assert load_model("cnn-melis", image(1, 22), seed=0)(torch.rand(1, 1, 22, 22)).shape == (1, 10)
    with pytest.raises(NotApplicable, match="at least 22x22"):
        load_model("cnn-melis", image(1, 21), seed=0)


def test_twice_differentiable_of_melis(image, check_twice_differentiable):
    data = image(3, 22, 3)
    check_twice_differentiable(load_model("cnn-melis:width=2,hidden=6,activation=sigmoid", data, seed=0), data)


def test_shapes_and_parameters():
    data = DataSpec("colour", (3, 32, 32), 100, "image")
    model = load_model("mkor-modified", data, seed=0)
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 100)
    assert parameter_count(model) == 2 * (3 * 3 * 25 + 3) + 3072 * 100 + 100
