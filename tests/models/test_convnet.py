"""Golden counts and shapes of the Inverting Gradients ConvNet (METHODS M6)."""

import pytest
import torch
from torch import nn

from leakgauge.errors import NotApplicable
from leakgauge.models import load_model


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
