"""Golden count and torchvision's names for ResNet-18 with the ImageNet stem."""

import pytest
import torch

from leakgauge.errors import NotApplicable
from leakgauge.models import load_model


def test_parameter_count(count):
    assert count("resnet18", 3, 224, 1000) == 11_689_512


def test_checkpoint_names_are_torchvisions(image):
    names = set(load_model("resnet18:width=2", image(), seed=0).state_dict())
    assert len(names) == 122  # 62 parameters, 20 BatchNorms with three buffers
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "fc.bias"} <= names
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_var"} <= names
    assert not any(n.startswith("layer1.0.downsample") for n in names)


def test_shrinks_32_fold(image):
    model = load_model("resnet18:width=2", image(3, 64), seed=0)
    assert model[:-2](torch.rand(1, 3, 64, 64)).shape == (1, 16, 2, 2)


def test_small_images_are_refused(image):
    with pytest.raises(NotApplicable, match=r"at least 32x32 pixels, but 'pictures' has 28x28"):
        load_model("resnet18", image(1, 28), seed=0)


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(3, 32, 3)
    check_twice_differentiable(load_model("resnet18:width=2", data, seed=0), data)
