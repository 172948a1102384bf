"""Golden counts, shapes and the built-in enlargement of the two LeNet-5s (METHODS M3, M10)."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.models.lenet5 import LeNet5MKOR, ToRgb32
from leakgauge.types import DataSpec


@pytest.mark.parametrize(("classes", "expected"), [(10, 62_006), (100, 69_656), (5749, 549_821)])
def test_grnn_parameter_count(count, classes, expected):
    assert count("lenet5-grnn", 3, 32, classes) == expected
    assert count("lenet5-grnn", 1, 28, classes) == expected  # MNIST goes through the same network


def test_mkor_parameter_count(count):
    by_hand = (25 * 6 + 6) + (6 * 25 * 16 + 16) + (400 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10)
    assert count("lenet5-mkor", 1, 28) == by_hand == 61_706


@pytest.mark.parametrize(("height", "width"), [(28, 28), (8, 20), (32, 40)])
def test_enlargement_is_the_librarys_bilinear_resize(height, width):
    x = torch.rand(2, 1, height, width)
    size = max(height, 32), max(width, 32)
    expected = F.interpolate(x, size, mode="bilinear", align_corners=False).repeat(1, 3, 1, 1)
    torch.testing.assert_close(ToRgb32(height, width)(x), expected)


def test_colour_images_of_32_px_see_no_extra_layer(image):
    names = [n for n, _ in load_model("lenet5-grnn", image(3, 32), seed=0).named_children()]
    assert names[0] == "conv1"


def test_grnn_widens_its_first_dense_layer_for_larger_images(image):
    model = load_model("lenet5-grnn", image(3, 64), seed=0)
    assert model.fc1.in_features == 16 * 13 * 13


def test_mkor_refuses_images_that_its_pooling_would_use_up(image):
    assert load_model("lenet5-mkor", image(1, 12), seed=0)(torch.rand(1, 1, 12, 12)).shape == (1, 10)
    with pytest.raises(NotApplicable, match="at least 12x12"):
        load_model("lenet5-mkor", image(1, 8), seed=0)


@pytest.mark.parametrize(("spec", "side"), [("lenet5-grnn", 28), ("lenet5-mkor", 12)])
def test_twice_differentiable(image, check_twice_differentiable, spec, side):
    data = image(1, side, 3)
    check_twice_differentiable(load_model(spec, data, seed=0), data)


def test_strides_stand_in_for_average_pooling():
    data = DataSpec("digit", (1, 28, 28), 4, "image")
    model = LeNet5MKOR(halving="stride").build(data, 0)
    assert not any(isinstance(m, nn.AvgPool2d) for m in model)
    assert model(torch.zeros(1, 1, 28, 28)).shape == (1, 4)
    pooled = LeNet5MKOR().build(data, 0)
    assert [p.shape for p in model.parameters()] == [p.shape for p in pooled.parameters()]
    with pytest.raises(BadInput, match="halving"):
        LeNet5MKOR(halving="max")
