"""Golden counts, names and shortcuts of the ResNets (METHODS M4, M7, M16)."""

import math

import pytest
import torch
from torch import nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.models.resnet import PadShortcut


@pytest.mark.parametrize(("spec", "expected"), [("resnet20", 269_722), ("resnet32", 464_154)])
def test_parameter_count(count, spec, expected):
    assert count(spec) == expected


@pytest.mark.parametrize("spec", ["resnet20", "resnet32"])
def test_shortcuts_have_no_parameters(image, spec):
    names = [n for n, _ in load_model(spec, image(), seed=0).named_parameters()]
    assert not any("downsample" in n for n in names)


@pytest.mark.parametrize(("size", "kept"), [(4, 2), (5, 3)])
def test_pad_shortcut_keeps_every_second_pixel_and_adds_zero_channels(size, kept):
    x = torch.rand(2, 3, size, size)
    out = PadShortcut(extra=4, stride=2)(x)
    assert out.shape == (2, 7, kept, kept)
    assert torch.equal(out[:, :3], x[:, :, ::2, ::2])
    assert not out[:, 3:].any()


def test_convolutions_start_with_he_et_als_spread(image):
    weight = load_model("resnet20", image(), seed=0).layer3[1].conv1.weight  # 64 -> 64, k3
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.02)


@pytest.mark.parametrize("spec", ["resnet20:width=2", "resnet32:width=2"])
def test_twice_differentiable(image, check_twice_differentiable, spec):
    data = image(3, 8, 3)
    check_twice_differentiable(load_model(spec, data, seed=0), data)


def test_parameter_count_of_resnet18(count):
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


def test_twice_differentiable_of_resnet18(image, check_twice_differentiable):
    data = image(3, 32, 3)
    check_twice_differentiable(load_model("resnet18:width=2", data, seed=0), data)


@pytest.mark.parametrize(("classes", "expected"), [(10, 4_327_754), (100, 4_350_884)])
def test_parameter_count_of_resnet20_4(count, classes, expected):
    assert count("resnet20-4", 3, 32, classes) == expected


def test_convolutions_start_with_the_kaiming_fan_out_spread(image):
    weight = load_model("resnet20-4", image(), seed=0).layer2[1].conv1.weight  # 128 -> 128, k3
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.02)


def test_twice_differentiable_of_resnet20_4(image, check_twice_differentiable):
    data = image(3, 8, 3)
    check_twice_differentiable(load_model("resnet20-4:width=2", data, seed=0), data)


@pytest.mark.parametrize(("classes", "expected"), [(10, 11_173_962), (100, 11_220_132)])
def test_parameter_count_of_resnet_grnn(count, classes, expected):
    assert count("resnet18-grnn", 3, 32, classes) == expected


def test_every_activation_is_a_sigmoid_of_its_own(image):
    modules = list(load_model("resnet18-grnn:width=2", image(), seed=0).modules())
    assert sum(isinstance(m, nn.Sigmoid) for m in modules) == 1 + 8 * 2
    assert not any(isinstance(m, nn.ReLU) for m in modules)


def test_batchnorm_is_drawn_uniformly_too(image):
    model = load_model("resnet18-grnn:width=2", image(), seed=0)
    assert model.layer4[1].bn2.weight.abs().max() <= 0.5
    assert model.layer4[1].bn2.bias.unique().numel() > 1


def test_twice_differentiable_of_resnet_grnn(image, check_twice_differentiable):
    data = image(3, 8, 3)
    check_twice_differentiable(load_model("resnet18-grnn:width=2", data, seed=0), data)
