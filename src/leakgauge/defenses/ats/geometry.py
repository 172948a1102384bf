"""Operations that move pixels, on batches of pictures (M, C, H, W); checked against Pillow's affine transforms.

Each output pixel's centre is mapped into the input, as Pillow does it: shifts and turns take the pixel it falls on,
shears a cubic through four neighbours. Amounts are per picture, (M,).
"""

from __future__ import annotations

import torch
from torch import Tensor

_FIXED = 65536  # Pillow turns pictures in whole 65536ths of a pixel


def shifted(pictures: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Pixel (x, y) shows what was at (x + right, y + down); black where nothing was."""
    height, width = pictures.shape[2:]
    x = torch.floor(torch.arange(width, device=right.device) + 0.5 + right[:, None].double()).long()  # (M, W)
    y = torch.floor(torch.arange(height, device=right.device) + 0.5 + down[:, None].double()).long()  # (M, H)
    return _picked(pictures, y[:, :, None].expand(-1, -1, width), x[:, None, :].expand(-1, height, -1), fill=0.0)


def turned(pictures: Tensor, degrees: Tensor, fill: float = 128 / 255) -> Tensor:
    """Counter-clockwise about the middle."""
    height, width = pictures.shape[2:]
    angle = torch.deg2rad(-degrees.double())
    cos, sin = (torch.round(v, decimals=15) for v in (torch.cos(angle), torch.sin(angle)))
    centre_x, centre_y = width / 2, height / 2
    from_x = cos * -centre_x + sin * -centre_y + centre_x
    from_y = -sin * -centre_x + cos * -centre_y + centre_y
    columns = torch.arange(width, device=degrees.device)[None, None, :]
    rows = torch.arange(height, device=degrees.device)[None, :, None]
    x = _fixed(from_x + cos * 0.5 + sin * 0.5) + columns * _fixed(cos) + rows * _fixed(sin)
    y = _fixed(from_y - sin * 0.5 + cos * 0.5) + columns * _fixed(-sin) + rows * _fixed(cos)
    return _picked(pictures, y >> 16, x >> 16, fill)


def sheared_down(pictures: Tensor, slope: Tensor) -> Tensor:
    """Pixel (x, y) shows what was at (x, y + slope x); black where nothing was."""
    height, width = pictures.shape[2:]
    x = torch.arange(width, device=slope.device) + 0.5
    y = torch.arange(height, device=slope.device) + 0.5
    wanted = y[None, :, None] + slope.double()[:, None, None] * x[None, None, :]  # (M, H, W), pixel centres at .5
    first = torch.floor(wanted - 0.5)
    beyond = (wanted - 0.5 - first).to(pictures)  # in [0, 1)
    column = torch.arange(width, device=slope.device)[None, None, :].expand_as(wanted)
    near = [_picked(pictures, (first.long() + k).clamp(0, height - 1), column, 0.0) for k in (-1, 0, 1, 2)]
    d = beyond[:, None]
    value = near[1] + d * (
        near[2]
        - near[0]
        + d * (2 * (near[0] - near[1]) + near[2] - near[3] + d * (near[1] - near[0] + near[3] - near[2]))
    )
    inside = (wanted >= 0) & (wanted < height)
    return torch.where(inside[:, None], value.clamp(0, 1), torch.zeros_like(value))


def cropped(pictures: Tensor, right: Tensor, down: Tensor, flip: Tensor) -> Tensor:
    """A window of the picture's size out of the picture with a black border, then mirrored where `flip` (M,) says."""
    moved = shifted(pictures, right, down)
    return torch.where(flip.view(-1, 1, 1, 1), moved.flip(-1), moved)


def _fixed(values: Tensor) -> Tensor:
    """(M,) -> (M, 1, 1) in 65536ths."""
    return torch.floor(values * _FIXED + 0.5).long()[:, None, None]


def _picked(pictures: Tensor, y: Tensor, x: Tensor, fill: float) -> Tensor:
    """The pixels at (y, x), each (M, H, W); `fill` outside the picture."""
    height, width = pictures.shape[2:]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    place = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)
    place = place[:, None].expand(-1, pictures.shape[1], -1, -1).flatten(2)
    found = pictures.flatten(2).gather(2, place).view_as(pictures)
    return torch.where(inside[:, None], found, torch.full_like(found, fill))
