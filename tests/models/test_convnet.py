"""Golden counts and shapes of the Inverting Gradients ConvNet (METHODS M6)."""

import pytest
import torch
from torch import nn

from leakgauge.errors import NotApplicable
from leakgauge.models import load_model


@pytest.mark.parametrize(("classes", "expected"), [(10, 2_904_970), (100, 3_112_420)])
def test_parameter_count(count, classes, expected):
    assert count("convnet", 3, 32, classes) == expected


def test_has_eight_convolutions_and_36_widths_of_features(image):
    model = load_model("convnet:width=2", image(), seed=0)
    assert sum(isinstance(m, nn.Conv2d) for m in model) == 8
    assert model.fc.in_features == 36 * 2


def test_nine_pixels_are_the_least(image):
    assert load_model("convnet:width=2", image(1, 9), seed=0)(torch.rand(1, 1, 9, 9)).shape == (1, 10)
    with pytest.raises(NotApplicable, match="at least 9x9"):
        load_model("convnet", image(1, 8), seed=0)


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(3, 9, 3)
    check_twice_differentiable(load_model("convnet:width=2", data, seed=0), data)
