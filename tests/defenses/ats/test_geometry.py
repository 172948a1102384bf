"""Pixels moved as Pillow moves them."""

import numpy as np
import pytest
import torch
from PIL import Image

from leakgauge.defenses.ats import operations as geometry

AFFINE, CUBIC = Image.Transform.AFFINE, Image.Resampling.BICUBIC


@pytest.fixture(params=[(32, 32), (28, 28), (17, 24)], ids=str)
def pictures(request):
    height, width = request.param
    levels = np.random.default_rng(0).integers(0, 256, (8, height, width, 3)).astype(np.uint8)
    return torch.from_numpy(levels).permute(0, 3, 1, 2).double() / 255, [Image.fromarray(x) for x in levels]


def grey_levels_apart(mine, theirs):
    levels = np.stack([np.asarray(p) for p in theirs])
    return float(np.abs(mine.permute(0, 2, 3, 1).numpy() * 255 - levels).max())


@pytest.mark.parametrize("pixels", [14.5, -14.5, 8.06, -3.22, 0.49, 0.51])
def test_shifts_are_pillows(pictures, pixels):
    x, known = pictures
    amount, none = torch.full((len(x),), pixels), torch.zeros(len(x))
    right = [p.transform(p.size, AFFINE, (1, 0, pixels, 0, 1, 0)) for p in known]
    down = [p.transform(p.size, AFFINE, (1, 0, 0, 0, 1, pixels)) for p in known]
    assert grey_levels_apart(geometry.shifted(x, amount, none), right) < 1e-9
    assert grey_levels_apart(geometry.shifted(x, none, amount), down) < 1e-9


@pytest.mark.parametrize("slope", [0.0667, -0.0667, 0.1667, -0.1667])
def test_shears_are_pillows(pictures, slope):
    x, known = pictures
    theirs = [p.transform(p.size, AFFINE, (1, 0, 0, slope, 1, 0), CUBIC) for p in known]
    assert grey_levels_apart(geometry.sheared_down(x, torch.full((len(x),), slope)), theirs) <= 1.0001


@pytest.mark.parametrize("degrees", [6.667, 20.0, -6.667])
def test_turns_are_pillows_on_grey(pictures, degrees):
    x, known = pictures

    def turned(picture):
        inside = picture.convert("RGBA").rotate(degrees)
        return Image.composite(inside, Image.new("RGBA", inside.size, (128,) * 4), inside).convert("RGB")

    mine = geometry.turned(x, torch.full((len(x),), degrees))
    assert grey_levels_apart(mine, [turned(p) for p in known]) < 1e-9


def test_each_picture_has_its_own_amount():
    x = torch.rand(2, 1, 8, 8)
    both = geometry.shifted(x, torch.tensor([2.0, -1.0]), torch.zeros(2))
    assert torch.equal(both[0, 0, :, :6], x[0, 0, :, 2:])
    assert torch.equal(both[1, 0, :, 1:], x[1, 0, :, :7])


def test_moved_pixels_hand_their_slope_back():
    x = torch.rand(1, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: geometry.sheared_down(v, torch.tensor([0.1])), (0.1 + 0.8 * x,))


def test_crop_moves_and_mirrors():
    x = torch.arange(16.0).view(1, 1, 4, 4) / 16
    same = geometry.cropped(x, torch.zeros(1), torch.zeros(1), torch.tensor([False]))
    mirrored = geometry.cropped(x, torch.zeros(1), torch.zeros(1), torch.tensor([True]))
    assert torch.equal(same, x)
    assert torch.equal(mirrored, x.flip(-1))
