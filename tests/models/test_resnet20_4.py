"""Golden counts of ResNet20-4 (METHODS M7)."""

import math

import pytest

from leakgauge.models import load_model


@pytest.mark.parametrize(("classes", "expected"), [(10, 4_327_754), (100, 4_350_884)])
def test_parameter_count(count, classes, expected):
    assert count("resnet20-4", 3, 32, classes) == expected


def test_convolutions_start_with_the_kaiming_fan_out_spread(image):
    weight = load_model("resnet20-4", image(), seed=0).layer2[1].conv1.weight  # 128 -> 128, k3
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.02)


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(3, 8, 3)
    check_twice_differentiable(load_model("resnet20-4:width=2", data, seed=0), data)
