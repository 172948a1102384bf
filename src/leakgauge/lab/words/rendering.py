"""From words to pictures: letters are drawn one word at a time, then warped, coloured, blurred and noised in batches.

The two renderers differ in fonts (see `fonts`) and in the settings below: `flat` prints on plain colours, `scene` bends
words over an uneven background. Draws are made on the CPU, so that every device trains on the same pictures.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional

from leakgauge.engine.randomness import generator
from leakgauge.lab.words.fonts import fonts_of
from leakgauge.lab.words.words import made_up
from leakgauge.settings import unknown_name

HEIGHT = 32  # the network's; widths may differ
_POINTS = 36  # drawn larger than shown, so that scaling down smooths
_CHUNK = 1024


@dataclass(frozen=True)
class Renderer:
    """How far pictures may differ from black on white. Lengths are shares of half the height."""

    tilt: float  # most that the baseline rises or falls from end to end
    slant: float  # most that the top moves against the bottom
    bend: float  # most that the baseline arches
    texture: float  # contrast of blotches and a gradient behind the word
    shadow: float  # how often letters throw one
    blur: float  # most, in pixels (standard deviation)
    noise: float  # most, in [0, 1]
    contrast: float  # least difference of brightness between letters and ground


RENDERERS: Mapping[str, Renderer] = {
    "flat": Renderer(tilt=0.15, slant=0.2, bend=0.0, texture=0.0, shadow=0.0, blur=0.6, noise=0.04, contrast=0.4),
    "scene": Renderer(tilt=0.3, slant=0.4, bend=0.3, texture=0.25, shadow=0.4, blur=0.8, noise=0.06, contrast=0.35),
}


@dataclass(frozen=True)
class Pictures:
    """Words as a client holds them."""

    images: Tensor  # (N, 3, HEIGHT, width) bytes
    words: tuple[str, ...]


@functools.lru_cache(maxsize=16)  # the same sets serve every aggregator
def rendered(
    renderer: str,
    count: int,
    width: int,
    longest: int,
    seed: int,
    *,
    held_out: bool = False,
    root: Path | None = None,
    folder: Path | None = None,
) -> Pictures:
    """`count` words by one renderer. Held-out words never occur in a training."""
    if renderer not in RENDERERS:
        raise unknown_name("renderer", renderer, RENDERERS)
    role = f"{renderer}/{'held-out' if held_out else 'train'}"
    words = made_up(count, longest, seed, role, held_out=held_out)
    masks = _drawn(words, fonts_of(renderer, root, folder), width, seed, role)
    g = generator(seed, f"pictures/{role}")
    parts = [_painted(some, RENDERERS[renderer], g) for some in torch.split(masks, _CHUNK)]
    return Pictures(torch.cat(parts), tuple(words))


def _drawn(words: Sequence[str], files: Sequence[Path], width: int, seed: int, role: str) -> Tensor:
    """(N, 1, HEIGHT, width) bytes, 255 where letters are; fonts and margins vary from word to word."""
    fonts = [ImageFont.truetype(str(file), _POINTS) for file in files]
    draws = torch.rand(len(words), 5, generator=generator(seed, f"letters/{role}")).tolist()
    out = np.empty((len(words), 1, HEIGHT, width), np.uint8)
    for row, (word, (which, *margins)) in enumerate(zip(words, draws, strict=True)):
        font = fonts[int(which * len(fonts))]
        left, top, right, bottom = font.getbbox(word)
        a, b, c, d = (round((0.05 + 0.2 * m) * (bottom - top)) for m in margins)
        page = Image.new("L", (round(right - left) + a + b, round(bottom - top) + c + d))
        ImageDraw.Draw(page).text((a - left, c - top), word, fill=255, font=font)
        out[row, 0] = np.asarray(page.resize((width, HEIGHT), Image.Resampling.BILINEAR))
    return torch.from_numpy(out)


def _painted(masks: Tensor, how: Renderer, g: torch.Generator) -> Tensor:
    """(N, 1, H, W) letters -> (N, 3, H, W) pictures, both bytes."""
    count, _, height, width = masks.shape
    letters = _blurred(_warped(masks.float() / 255, how, g), how.blur, g)
    ground, ink = _colours(count, how.contrast, g)
    canvas = ground.expand(count, 3, height, width)
    if how.texture:
        coarse = _between(-1, 1, (count, 1, 3, 6), g)
        blotches = functional.interpolate(coarse, size=(height, width), mode="bilinear", align_corners=False)
        canvas = canvas + _between(0, how.texture, (count, 1, 1, 1), g) * blotches
    if how.shadow:
        thrown = functional.pad(letters, (2, 0, 2, 0))[:, :, :height, :width]
        dark = 0.5 * (_between(0, 1, (count, 1, 1, 1), g) < how.shadow)
        canvas = canvas * (1 - dark * thrown)
    grain = _between(0, how.noise, (count, 1, 1, 1), g) * torch.randn(count, 1, height, width, generator=g)
    picture = canvas + letters * (ink - canvas) + grain
    return picture.clamp_(0, 1).mul_(255).round_().byte()


def _warped(letters: Tensor, how: Renderer, g: torch.Generator) -> Tensor:
    count, _, height, width = letters.shape
    y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    tilt, slant, bend = (_between(-most, most, (count, 1, 1), g) for most in (how.tilt, how.slant, how.bend))
    across = x + slant * (height / width) * y  # the slant is in units of the height
    down = y * (1 + tilt.abs() + bend.abs()) + tilt * x + bend * (2 * torch.cos(x * math.pi / 2) - 1)
    grid = torch.stack([across, down], 3)  # (N, H, W, 2): the letters shrink by as much as they may move
    return functional.grid_sample(letters, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def _colours(count: int, contrast: float, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """(N, 3, 1, 1) of the ground and of the letters, apart in brightness by at least `contrast`, either lighter."""
    ground = torch.rand(count, 3, 1, 1, generator=g)
    tint = 0.3 * (torch.rand(count, 3, 1, 1, generator=g) - 0.5)
    bright = ground.mean(1, keepdim=True)
    room = torch.stack([bright, 1 - bright])  # below and above the ground's brightness
    away = contrast + (room - contrast).clamp(min=0) * torch.rand(count, 1, 1, 1, generator=g)
    lighter = torch.where((room > contrast).all(0), torch.rand(count, 1, 1, 1, generator=g) < 0.5, room[1] > room[0])
    ink = torch.where(lighter, bright + away[1], bright - away[0])
    return ground, (ink + tint - tint.mean(1, keepdim=True)).clamp(0, 1)


def _blurred(letters: Tensor, most: float, g: torch.Generator) -> Tensor:
    """Blur each word by its own width: five taps vertically, then horizontally."""
    count = len(letters)
    taps = torch.exp(-((torch.arange(-2.0, 3.0) / _between(0.05, most, (count, 1), g)) ** 2) / 2)
    taps = taps / taps.sum(1, keepdim=True)  # (N, 5)
    side_by_side = letters.transpose(0, 1)  # (1, N, H, W): one channel for each word
    down = functional.conv2d(side_by_side, taps[:, None, :, None], padding=(2, 0), groups=count)
    return functional.conv2d(down, taps[:, None, None, :], padding=(0, 2), groups=count).transpose(0, 1)


def _between(low: float, high: float, shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=g)
