"""Golden count, layers and the lock's place in VGG16 with BatchNorm."""

import pytest
import torch
from torch import nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model, parameter_count
from leakgauge.models.locked_norm import locks_in, place_for_norm, with_norm

TINY = "vgg16-bn:width=2,hidden=8"


def test_parameter_count_is_the_published_one(count):
    assert count("vgg16-bn", 3, 224, 1000) == 138_365_992


def test_every_convolution_has_a_batchnorm_behind_it(image):
    layers = list(load_model(TINY, image(), seed=0))
    places = [i for i, m in enumerate(layers) if isinstance(m, nn.Conv2d)]
    assert len(places) == 13
    assert all(isinstance(layers[i + 1], nn.BatchNorm2d) for i in places)


def test_the_lock_takes_the_first_and_has_the_printed_share(image):
    """Ren 2023, table 5.3: 0.097 % of all parameters."""
    with torch.device("meta"):
        model = load_model("vgg16-bn", image(3, 224), seed=0)
        assert place_for_norm(model, "first") == "bn1_1"
        locked = with_norm(model, "first", 1024)
        (lock,) = locks_in(locked).values()
        inside = lock.weight.numel() + lock.bias.numel()
        assert round(100 * inside / (inside + parameter_count(locked)), 3) in (0.097, 0.098)


def test_small_pictures_can_be_enlarged_inside(image):
    model = load_model(f"{TINY},enlarge=64", image(3, 8), seed=0).eval()
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 10)
    assert model.fc1.in_features == 16 * 4


def test_what_does_not_fit_is_refused(image):
    with pytest.raises(NotApplicable, match="at least 32x32"):
        load_model("vgg16-bn", image(3, 31), seed=0)
    with pytest.raises(BadInput, match="vgg16-bn: hidden must be at least 1"):
        load_model("vgg16-bn:hidden=0", image(), seed=0)
    with pytest.raises(BadInput, match="vgg16-bn: enlarge must be at least 0"):
        load_model("vgg16-bn:enlarge=-1", image(), seed=0)


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(3, 32, 3)
    check_twice_differentiable(load_model(TINY, data, seed=0), data)
