"""Golden count and padding of MKOR's VGG16 (METHODS M10)."""

import pytest
import torch
from torch import nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
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


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(3, 32, 3)
    check_twice_differentiable(load_model(TINY, data, seed=0), data)


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
