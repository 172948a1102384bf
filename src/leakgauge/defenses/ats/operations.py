"""The fifty operations of automatic transformation search, by index, and policies: up to three of them in a row.

All act on batches of pictures (M, C, H, W) in [0, 1].

Gao et al., "Privacy-preserving collaborative learning with automatic transformation search", CVPR 2021, whose list is
that of a published augmentation policy for CIFAR-10: 29 of the fifty are distinct, two of them change nothing. Each has
a level of 0 to 9. Shifts, shears and the factors of colour, contrast, brightness and sharpness take a random sign for
every picture; turns are always to the left.

All are checked against Pillow's. Where Pillow looks a value up in a table of 256 levels, so do we, and hand the slope
of a straight line back: these operations have none of their own that an optimiser could use. Where pixels move, each
output pixel's centre is mapped into the input: shifts and turns take the pixel it falls on, shears a cubic through four
neighbours. Amounts are per picture, (M,).

A policy is up to three operations in a row; several with slashes between them are a hybrid, one drawn per picture.
`3-1-7` shifts, changes the contrast and shifts again; `3-1-7/43-18-18` does that to about half of the pictures and the
other three to the rest. The probabilities that the published list keeps with its operations are ignored, there and
here: an operation of the policy is always applied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput

COUNT = 50
LENGTH = 3  # operations at most
BORDER = 4  # pixels around a picture that the released code crops from
NOTHING = -1  # in place of an index: no operation

Triple = tuple[int, ...]
_TRIPLE = rf"\d+(-\d+){{0,{LENGTH - 1}}}"
_WRITTEN = rf"{_TRIPLE}(/{_TRIPLE})*"
_MOST = 9  # the highest level of an operation
_SHIFT, _SHEAR, _TURN, _FACTOR = 0.4532, 0.3, 30.0, 0.5  # of the side, slope, degrees, away from 1: at that level
_LEVELS = 255
_LUMA = (19595 / 65536, 38470 / 65536, 7471 / 65536)  # Pillow's whole numbers for 0.299, 0.587, 0.114
_SMOOTH = tuple(part / 13 for part in (1, 1, 1, 1, 5, 1, 1, 1, 1))  # 3 x 3: what sharpness departs from
_FIXED = 65536  # Pillow turns pictures in whole 65536ths of a pixel


@dataclass(frozen=True)
class Operation:
    """One entry of the list. `signed`: a random sign per picture decides its direction."""

    kind: str
    level: int = 0

    @property
    def signed(self) -> bool:
        return self.kind in _SIGNED

    @property
    def changes_nothing(self) -> bool:
        return (self.kind, self.level) in (("solarize", 0), ("color", 0))

    @property
    def moves_pixels(self) -> bool:
        return self.kind in _MOVES

    def factor(self, sign: int) -> float:
        """By which a blend moves away from grey, black or smooth."""
        return 1 + _FACTOR * self.level / _MOST * sign

    def __call__(self, pictures: Tensor, signs: Tensor) -> Tensor:
        """(M, C, H, W) in [0, 1] -> the same shape; signs (M,) are +1 or -1."""
        strength, signs = self.level / _MOST, self._directions(signs)
        if self.changes_nothing:
            return pictures
        if self.kind in _BLENDS:
            return blended(self.kind, pictures, 1 + _FACTOR * strength * signs)
        if self.kind in _MOVES:
            return _MOVES[self.kind](pictures, strength, signs)
        return _CHANGES[self.kind](pictures, strength)

    def undone(self, pictures: Tensor, signs: Tensor) -> Tensor:
        """What can be undone by someone who knows the sign; the rest (levels merged or spread) stays as it is.

        A blend away from a mean that stays is undone by 1 / factor.
        """
        strength, signs = self.level / _MOST, self._directions(signs)
        if self.kind == "sharpness":
            return _unsharpened(pictures, 1 + _FACTOR * strength * signs)
        if self.kind in _BLENDS and not self.changes_nothing:
            return blended(self.kind, pictures, 1 / (1 + _FACTOR * strength * signs))
        if self.kind in _MOVES:
            return _MOVES[self.kind](pictures, strength, -signs)
        return 1 - pictures if self.kind == "invert" else pictures

    def _directions(self, signs: Tensor) -> Tensor:
        return signs.double() if self.signed else torch.ones_like(signs, dtype=torch.float64)

    def __str__(self) -> str:
        return f"{self.kind}{self.level}" if self.kind in _LEVELLED else self.kind


def blended(kind: str, pictures: Tensor, factor: Tensor) -> Tensor:
    """Away from black, from the grey picture or its mean, or from the smoothed picture, by `factor` (M,)."""
    plain = _BLENDS[kind](pictures)
    return (plain + factor.to(pictures).view(-1, 1, 1, 1) * (pictures - plain)).clamp(0, 1)


def smoothed(pictures: Tensor) -> Tensor:
    """A mean with the neighbours; the border stays as it is."""
    channels, height, width = pictures.shape[1:]
    if min(height, width) < 3:
        return pictures
    kernel = _constant(_SMOOTH, pictures.dtype, pictures.device).view(3, 3).expand(channels, 1, 3, 3)
    inner = F.conv2d(pictures, kernel, groups=channels)
    middle = F.pad(torch.ones_like(inner[:1, :1]), (1, 1, 1, 1))
    return torch.where(middle > 0, F.pad(_nearest_level(inner), (1, 1, 1, 1)), pictures)


def posterized(pictures: Tensor, bits: int) -> Tensor:
    """Only the `bits` highest bits of each level stay."""
    step = 2 ** (8 - bits)
    levels = torch.floor(_levels(pictures) / step) * step
    return _straight_through(pictures, levels / _LEVELS)


def solarized(pictures: Tensor, threshold: float) -> Tensor:
    """Levels from `threshold` on, in 0 to 256, are inverted."""
    return torch.where(_levels(pictures) < threshold, pictures, 1 - pictures)


def autocontrasted(pictures: Tensor) -> Tensor:
    """Each channel is stretched to the whole range; a channel of one level stays."""
    low, high = pictures.amin((2, 3), keepdim=True), pictures.amax((2, 3), keepdim=True)
    width = high - low
    return torch.where(width > 0, (pictures - low) / torch.where(width > 0, width, torch.ones_like(width)), pictures)


def equalized(pictures: Tensor) -> Tensor:
    """Each channel's levels are spread evenly, by Pillow's integer rule."""
    levels = _levels(pictures).long()  # (M, C, H, W)
    flat = levels.flatten(2)
    counts = flat.new_zeros(*flat.shape[:2], _LEVELS + 1).scatter_add(2, flat, torch.ones_like(flat))
    brightest = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - brightest) // _LEVELS  # (M, C, 1)
    before = counts.cumsum(2) - counts
    table = ((step // 2 + before) // step.clamp_min(1)).clamp_max(_LEVELS)
    table = torch.where(step > 0, table, torch.arange(_LEVELS + 1, device=flat.device))
    spread = table.gather(2, flat).view_as(levels).to(pictures) / _LEVELS
    return _straight_through(pictures, spread)


def _grey(pictures: Tensor) -> Tensor:
    """(M, 1, H, W): the picture's luma, in levels as Pillow rounds it."""
    if pictures.shape[1] != len(_LUMA):
        return _nearest_level(pictures.mean(1, keepdim=True))
    weights = _constant(_LUMA, pictures.dtype, pictures.device)
    return _nearest_level((pictures * weights[:, None, None]).sum(1, keepdim=True))


@cache
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Kept on the device: sent there in every step, it would stop a search from being recorded."""
    return torch.tensor(values, dtype=dtype, device=device)


def _levels(pictures: Tensor) -> Tensor:
    """0 to 255, whole numbers, without a slope."""
    return (pictures.detach() * _LEVELS).round().clamp(0, _LEVELS)


def _nearest_level(values: Tensor) -> Tensor:
    return _straight_through(values, _levels(values) / _LEVELS)


def _straight_through(values: Tensor, result: Tensor) -> Tensor:
    """`result`, with the slope of `values`."""
    return result + (values - values.detach())


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


def _unsharpened(pictures: Tensor, factor: Tensor) -> Tensor:
    """y = s + f (x - s) with s the smoothed x: solved by stepping to the x that explains y."""
    guess, factor = pictures, factor.to(pictures).view(-1, 1, 1, 1)
    for _ in range(8):
        guess = (guess + (pictures - blended("sharpness", guess, factor)) / factor.clamp_min(1)).clamp(0, 1)
    return guess


_BLENDS: dict[str, Callable[[Tensor], Tensor]] = {  # what pictures are blended with
    "contrast": lambda x: _nearest_level(_grey(x).mean((1, 2, 3), keepdim=True)),
    "color": _grey,
    "brightness": torch.zeros_like,
    "sharpness": smoothed,
}
_MOVES: dict[str, Callable[[Tensor, float, Tensor], Tensor]] = {
    "rotate": lambda x, a, s: turned(x, _TURN * a * s),
    "translateX": lambda x, a, s: shifted(x, _SHIFT * a * x.shape[3] * s, 0 * s),
    "translateY": lambda x, a, s: shifted(x, 0 * s, _SHIFT * a * x.shape[2] * s),
    "shearY": lambda x, a, s: sheared_down(x, _SHEAR * a * s),
}
_CHANGES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "invert": lambda x, _: 1 - x,
    "autocontrast": lambda x, _: autocontrasted(x),
    "equalize": lambda x, _: equalized(x),
    "posterize": lambda x, a: posterized(x, round(8 - 4 * a)),
    "solarize": lambda x, a: solarized(x, 256 * (1 - a)),
}
_SIGNED = (*_BLENDS, "translateX", "translateY", "shearY")
_LEVELLED = (*_SIGNED, "rotate", "posterize", "solarize")

_LISTED = (
    "invert contrast6 rotate2 translateX9 sharpness1 sharpness3 shearY2 translateY2 autocontrast equalize "
    "shearY5 posterize5 color3 brightness5 sharpness9 brightness9 equalize equalize contrast7 sharpness5 "
    "color5 translateX5 equalize autocontrast translateY3 sharpness6 brightness6 color8 solarize0 invert "
    "equalize autocontrast equalize equalize color5 equalize autocontrast solarize4 brightness3 color0 "
    "solarize1 autocontrast translateY3 translateY3 autocontrast solarize1 equalize invert translateY3 autocontrast"
)


def _read(name: str) -> Operation:
    return Operation(name[:-1], int(name[-1])) if name[-1].isdigit() else Operation(name)


OPERATIONS: tuple[Operation, ...] = tuple(_read(name) for name in _LISTED.split())


@dataclass(frozen=True)
class Draw:
    """What chance decided for each picture, (M, ...): the only secret of a known policy."""

    operations: Tensor  # (M, 3) indices, or NOTHING
    signs: Tensor  # (M, 3) +1 or -1
    crop: Tensor  # (M, 3) pixels to the right, pixels down, mirrored or not; zeros unless as released

    def to(self, device: torch.device) -> Draw:
        return Draw(self.operations.to(device), self.signs.to(device), self.crop.to(device))


def parse(text: str) -> tuple[Triple, ...]:
    """`3-1-7/43-18-18` -> ((3, 1, 7), (43, 18, 18)). Refused with what is wrong."""
    if not re.fullmatch(_WRITTEN, text, re.ASCII):
        allowed = f"one to {LENGTH} numbers with dashes, such as 3-1-7, or several such with slashes"
        do = "3-1-7/43-18-18 is the published hybrid for CIFAR-100"
        raise BadInput("policy", allowed=allowed, got=repr(text), do=do)
    found = tuple(tuple(int(n) for n in part.split("-")) for part in text.split("/"))
    largest = max(n for triple in found for n in triple)
    if largest >= COUNT:
        allowed = f"made of operations 0 to {COUNT - 1}"
        raise BadInput("policy", allowed=allowed, got=f"{largest} in {text!r}", do="choose others")
    return found


def written(policies: Sequence[Triple]) -> str:
    return "/".join("-".join(str(n) for n in triple if n != NOTHING) for triple in policies)


def draw(policies: Sequence[Triple], seeds: Sequence[int], samples: int, *, as_released: bool = False) -> Draw:
    """For each of len(seeds) x samples pictures, in that order: which policy, which signs, which crop."""
    table = torch.full((len(policies), LENGTH), NOTHING)
    for row, triple in enumerate(policies):
        table[row, : len(triple)] = torch.tensor(triple)
    which, signs, crops = [], [], []
    for seed in seeds:
        random = generator(seed, "policy")
        which.append(torch.randint(len(policies), (samples,), generator=random))
        signs.append(2 * torch.randint(2, (samples, LENGTH), generator=random) - 1)
        crop = torch.randint(-BORDER, BORDER + 1, (samples, 3), generator=random)
        crop[:, 2] = torch.randint(2, (samples,), generator=random)
        crops.append(crop if as_released else torch.zeros_like(crop))
    return Draw(table[torch.cat(which)], torch.cat(signs), torch.cat(crops))


def applied(pictures: Tensor, drawn: Draw) -> Tensor:
    """(M, C, H, W) in [0, 1], each through the operations drawn for it; differentiable."""
    if drawn.crop.any():
        right, down, mirrored = drawn.crop.unbind(1)
        pictures = cropped(pictures, right.double(), down.double(), mirrored.bool())
    for place in range(LENGTH):
        pictures = _each(pictures, drawn, place, undo=False)
    return pictures


def undone(pictures: Tensor, drawn: Draw) -> Tensor:
    """The way back for someone who knows what was drawn: exact where nothing was lost on the way."""
    for place in reversed(range(LENGTH)):
        pictures = _each(pictures, drawn, place, undo=True)
    if drawn.crop.any():
        right, down, mirrored = drawn.crop.unbind(1)
        pictures = torch.where(mirrored.bool().view(-1, 1, 1, 1), pictures.flip(-1), pictures)
        pictures = shifted(pictures, -right.double(), -down.double())
    return pictures


def effect(triple: Triple) -> tuple[tuple[Operation, int | None], ...]:
    """What a policy does to every picture: two with the same effect are the same policy under other numbers.

    Operations that stand in the list under several numbers are one, and those that change nothing are none. Chance
    draws the sign of the first, second and third operation apart, so the place counts for those that have one.
    """
    done = ((place, OPERATIONS[number]) for place, number in enumerate(triple))
    return tuple((op, place if op.signed else None) for place, op in done if not op.changes_nothing)


def _each(pictures: Tensor, drawn: Draw, place: int, *, undo: bool) -> Tensor:
    """The operation at `place`, one kind after another for all pictures that have it."""
    indices, signs = drawn.operations[:, place], drawn.signs[:, place]
    kinds: dict[Operation, list[int]] = {}
    for index in sorted(set(indices.tolist())):  # equal operations under several numbers run together
        if index != NOTHING and not OPERATIONS[index].changes_nothing:
            kinds.setdefault(OPERATIONS[index], []).append(index)
    for operation, numbers in kinds.items():
        mine = torch.isin(indices, torch.tensor(numbers, device=indices.device)).nonzero().squeeze(1)
        step = operation.undone if undo else operation
        pictures = pictures.index_copy(0, mine, step(pictures[mine], signs[mine]))
    return pictures
