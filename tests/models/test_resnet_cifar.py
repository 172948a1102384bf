"""Golden counts and the parameter-free shortcuts of the CIFAR ResNets (METHODS M16)."""

import math

import pytest
import torch

from leakgauge.models import load_model
from leakgauge.models._blocks import PadShortcut


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
