"""Golden counts of GRNN's sigmoid ResNet-18 (METHODS M4)."""

import pytest
from torch import nn

from leakgauge.models import load_model


@pytest.mark.parametrize(("classes", "expected"), [(10, 11_173_962), (100, 11_220_132)])
def test_parameter_count(count, classes, expected):
    assert count("resnet18-grnn", 3, 32, classes) == expected


def test_every_activation_is_a_sigmoid_of_its_own(image):
    modules = list(load_model("resnet18-grnn:width=2", image(), seed=0).modules())
    assert sum(isinstance(m, nn.Sigmoid) for m in modules) == 1 + 8 * 2
    assert not any(isinstance(m, nn.ReLU) for m in modules)


def test_batchnorm_is_drawn_uniformly_too(image):
    model = load_model("resnet18-grnn:width=2", image(), seed=0)
    assert model.layer4[1].bn2.weight.abs().max() <= 0.5
    assert model.layer4[1].bn2.bias.unique().numel() > 1


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(3, 8, 3)
    check_twice_differentiable(load_model("resnet18-grnn:width=2", data, seed=0), data)
