"""Golden counts and shapes of the property-inference network (METHODS M14)."""

import pytest
import torch
from torch import nn

from leakgauge.errors import NotApplicable
from leakgauge.models import load_model, parameter_count
from leakgauge.types import DataSpec


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


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(3, 22, 3)
    check_twice_differentiable(load_model("cnn-melis:width=2,hidden=6,activation=sigmoid", data, seed=0), data)
