"""Golden counts and padding of the two VGG16 (METHODS M10)."""

import pytest
import torch
from torch import nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model, parameter_count
from leakgauge.models.locked_norm import locks_in, place_for_norm, with_norm
from leakgauge.models.vgg import VGG16MKOR
from leakgauge.types import DataSpec

TINY = "vgg16-mkor:width=2,hidden=8"


def test_parameter_count(count):
    assert count("vgg16-mkor", 3, 224, 100) == 134_670_244


def test_all_13_convolutions_pad_by_replication(image):
    convs = [m for m in load_model(TINY, image(), seed=0) if isinstance(m, nn.Conv2d)]
    assert len(convs) == 13
    assert {c.padding_mode for c in convs} == {"replicate"}


@pytest.mark.parametrize(("side", "features"), [(32, 16), (63, 16), (64, 64), (224, 784)])
def test_only_the_first_dense_layer_follows_the_image_size(image, side, features):
    model = load_model(TINY, image(3, side), seed=0)
    assert model.fc1.in_features == features
    assert model(torch.rand(1, 3, side, side)).shape == (1, 10)


def test_images_that_five_poolings_use_up_are_refused(image):
    with pytest.raises(NotApplicable, match="at least 32x32"):
        load_model("vgg16-mkor", image(3, 31), seed=0)


@pytest.mark.parametrize("spec", ["vgg16-mkor:width=2,hidden=8", "vgg16-bn:width=2,hidden=8"])
def test_twice_differentiable(image, check_twice_differentiable, spec):
    data = image(3, 32, 3)
    check_twice_differentiable(load_model(spec, data, seed=0), data)


def test_strides_stand_in_for_pooling_and_batchnorm_behind_convolutions():
    data = DataSpec("colour", (3, 33, 32), 5, "image")
    model = VGG16MKOR(width=2, hidden=8, halving="stride", batchnorm=True).build(data, 0)
    strides = {name: m.stride[0] for name, m in model.named_children() if isinstance(m, nn.Conv2d)}
    assert [name for name, stride in strides.items() if stride == 2] == [
        "conv1_2",
        "conv2_2",
        "conv3_3",
        "conv4_3",
        "conv5_3",
    ]
    assert not any(isinstance(m, nn.MaxPool2d) for m in model)
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model) == 13
    assert model(torch.zeros(1, 3, 33, 32)).shape == (1, 5)
    with pytest.raises(BadInput, match="halving"):
        VGG16MKOR(halving="average")


TINY_VGG16_BN = "vgg16-bn:width=2,hidden=8"


def test_parameter_count_is_the_published_one(count):
    assert count("vgg16-bn", 3, 224, 1000) == 138_365_992


def test_every_convolution_has_a_batchnorm_behind_it(image):
    layers = list(load_model(TINY_VGG16_BN, image(), seed=0))
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
    model = load_model(f"{TINY_VGG16_BN},enlarge=64", image(3, 8), seed=0).eval()
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 10)
    assert model.fc1.in_features == 16 * 4


def test_what_does_not_fit_is_refused(image):
    with pytest.raises(NotApplicable, match="at least 32x32"):
        load_model("vgg16-bn", image(3, 31), seed=0)
    with pytest.raises(BadInput, match="vgg16-bn: hidden must be at least 1"):
        load_model("vgg16-bn:hidden=0", image(), seed=0)
    with pytest.raises(BadInput, match="vgg16-bn: enlarge must be at least 0"):
        load_model("vgg16-bn:enlarge=-1", image(), seed=0)
