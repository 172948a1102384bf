"""Golden counts and torchvision's names for ResNet-18 and ResNet-34 with the ImageNet stem."""

import pytest
import torch

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model


def test_parameter_count(count):
    assert count("resnet18", 3, 224, 1000) == 11_689_512
    assert count("resnet34", 3, 224, 1000) == 21_797_672


def test_checkpoint_names_are_torchvisions(image):
    names = set(load_model("resnet18:width=2", image(), seed=0).state_dict())
    assert len(names) == 122  # 62 parameters, 20 BatchNorms with three buffers
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "fc.bias"} <= names
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_var"} <= names
    assert not any(n.startswith("layer1.0.downsample") for n in names)


def test_shrinks_32_fold(image):
    model = load_model("resnet18:width=2", image(3, 64), seed=0)
    assert model[:-2](torch.rand(1, 3, 64, 64)).shape == (1, 16, 2, 2)


def test_small_pictures_can_be_enlarged_inside(image):
    model = load_model("resnet34:width=2,enlarge=64", image(3, 8), seed=0).eval()
    plain = load_model("resnet34:width=2", image(3, 64), seed=0).eval()
    x = torch.rand(2, 3, 8, 8)
    large = torch.nn.functional.interpolate(x, (64, 64), mode="bilinear", align_corners=False)
    torch.testing.assert_close(model(x), plain(large), rtol=1e-4, atol=1e-5)
    with pytest.raises(BadInput, match="resnet34: enlarge must be at least 0"):
        load_model("resnet34:enlarge=-1", image(), seed=0)


def test_small_images_are_refused(image):
    with pytest.raises(NotApplicable, match=r"at least 32x32 pixels, but 'pictures' has 28x28"):
        load_model("resnet18", image(1, 28), seed=0)


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(3, 32, 3)
    check_twice_differentiable(load_model("resnet18:width=2", data, seed=0), data)
