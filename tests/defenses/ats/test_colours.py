"""Grey levels and colours as Pillow changes them."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from leakgauge.defenses.ats import operations as colours

FACTORS = (0.5, 0.667, 1.333, 1.5)


@pytest.fixture(params=[(3, 32), (1, 28), (3, 17)], ids=str)
def pictures(request):
    """Noise and soft gradients: (M, C, H, W) in [0, 1] and the same as Pillow has them."""
    channels, side = request.param
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (6, side, side, channels))
    soft = np.linspace(20, 200, side)[:, None, None] + random.integers(0, 30, (6, side, side, channels))
    levels = np.concatenate([noise, soft]).astype(np.uint8)
    known = [Image.fromarray(x if channels == 3 else x[..., 0]) for x in levels]
    return torch.from_numpy(levels).permute(0, 3, 1, 2).double() / 255, known


def grey_levels_apart(mine, theirs):
    levels = np.stack([np.asarray(p).reshape(*mine.shape[2:], mine.shape[1]) for p in theirs])
    return float(np.abs(mine.permute(0, 2, 3, 1).numpy() * 255 - levels).max())


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", ["contrast", "color", "brightness", "sharpness"])
def test_blends_are_pillows(pictures, name, factor):
    x, known = pictures
    theirs = getattr(ImageEnhance, name.capitalize())
    mine = colours.blended(name, x, torch.full((len(x),), factor))
    assert grey_levels_apart(mine, [theirs(p).enhance(factor) for p in known]) <= 1.0001


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (lambda x: 1 - x, ImageOps.invert),
        (colours.autocontrasted, ImageOps.autocontrast),
        (colours.equalized, ImageOps.equalize),
        (lambda x: colours.posterized(x, 6), lambda p: ImageOps.posterize(p, 6)),
        (lambda x: colours.solarized(x, 142.2), lambda p: ImageOps.solarize(p, 142.2)),
    ],
    ids=["invert", "autocontrast", "equalize", "posterize", "solarize"],
)
def test_tables_of_levels_are_pillows(pictures, mine, theirs):
    x, known = pictures
    assert grey_levels_apart(mine(x), [theirs(p) for p in known]) <= 1.0001


def test_flat_pictures_survive():
    flat = torch.full((2, 3, 8, 8), 0.5)
    assert torch.allclose(colours.autocontrasted(flat), flat)
    assert torch.allclose(colours.equalized(flat), torch.full_like(flat, 128 / 255))  # their nearest level


@pytest.mark.parametrize("operation", [colours.equalized, lambda x: colours.posterized(x, 4)])
def test_operations_without_a_slope_hand_on_that_of_a_line(operation):
    x = torch.rand(1, 3, 8, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(operation(x).sum(), x)
    assert torch.equal(slope, torch.ones_like(x))


def test_tiny_pictures_have_nothing_to_smooth():
    x = torch.rand(1, 3, 2, 2)
    assert torch.equal(colours.smoothed(x), x)
