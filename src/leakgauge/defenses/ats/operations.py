"""The fifty operations of automatic transformation search, by index, on batches of pictures.

Gao et al., "Privacy-preserving collaborative learning with automatic transformation search", CVPR 2021, whose list is
that of a published augmentation policy for CIFAR-10: 29 of the fifty are distinct, two of them change nothing. Each has
a level of 0 to 9. Shifts, shears and the factors of colour, contrast, brightness and sharpness take a random sign for
every picture; turns are always to the left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.defenses.ats import colours, geometry

COUNT = 50
_MOST = 9  # the highest level
_SHIFT, _SHEAR, _TURN, _FACTOR = 0.4532, 0.3, 30.0, 0.5  # of the side, slope, degrees, away from 1: at that level


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
        return self.kind in ("translateX", "translateY", "shearY", "rotate")

    def factor(self, sign: int) -> float:
        """By which a blend moves away from grey, black or smooth."""
        return 1 + _FACTOR * self.level / _MOST * sign

    def __call__(self, pictures: Tensor, signs: Tensor) -> Tensor:
        """(M, C, H, W) in [0, 1] -> the same shape; signs (M,) are +1 or -1."""
        if self.changes_nothing:
            return pictures
        return _APPLY[self.kind](pictures, self.level / _MOST, signs)

    def undone(self, pictures: Tensor, signs: Tensor) -> Tensor:
        """What can be undone by someone who knows the sign; the rest (levels merged or spread) stays as it is."""
        if self.changes_nothing:
            return pictures
        return _UNDO.get(self.kind, _stay)(pictures, self.level / _MOST, signs)

    def __str__(self) -> str:
        return f"{self.kind}{self.level}" if self.kind in _LEVELLED else self.kind


_Apply = Callable[[Tensor, float, Tensor], Tensor]
_SIGNED = ("contrast", "translateX", "translateY", "sharpness", "shearY", "color", "brightness")
_LEVELLED = (*_SIGNED, "rotate", "posterize", "solarize")


def _factor(strength: float, signs: Tensor) -> Tensor:
    return 1 + _FACTOR * strength * signs.double()


def _none(signs: Tensor) -> Tensor:
    return torch.zeros_like(signs, dtype=torch.float64)


def _stay(pictures: Tensor, strength: float, signs: Tensor) -> Tensor:  # noqa: ARG001
    return pictures


def _across(pictures: Tensor, strength: float, signs: Tensor) -> Tensor:
    return geometry.shifted(pictures, _SHIFT * strength * pictures.shape[3] * signs.double(), _none(signs))


def _down(pictures: Tensor, strength: float, signs: Tensor) -> Tensor:
    return geometry.shifted(pictures, _none(signs), _SHIFT * strength * pictures.shape[2] * signs.double())


def _turn(pictures: Tensor, strength: float, signs: Tensor) -> Tensor:
    return geometry.turned(pictures, torch.full_like(signs, _TURN * strength, dtype=torch.float64))


def _turn_back(pictures: Tensor, strength: float, signs: Tensor) -> Tensor:
    return geometry.turned(pictures, torch.full_like(signs, -_TURN * strength, dtype=torch.float64))


def _sharpen_back(pictures: Tensor, strength: float, signs: Tensor) -> Tensor:
    """y = s + f (x - s) with s the smoothed x: solved by stepping to the x that explains y."""
    factor = _factor(strength, signs).to(pictures).view(-1, 1, 1, 1)
    guess = pictures
    for _ in range(8):
        guess = (guess + (pictures - colours.sharpness(guess, factor.flatten())) / factor.clamp_min(1)).clamp(0, 1)
    return guess


_APPLY: dict[str, _Apply] = {
    "invert": lambda x, _, __: colours.inverted(x),
    "contrast": lambda x, a, s: colours.contrast(x, _factor(a, s)),
    "rotate": _turn,
    "translateX": _across,
    "translateY": _down,
    "sharpness": lambda x, a, s: colours.sharpness(x, _factor(a, s)),
    "shearY": lambda x, a, s: geometry.sheared_down(x, _SHEAR * a * s.double()),
    "autocontrast": lambda x, _, __: colours.autocontrasted(x),
    "equalize": lambda x, _, __: colours.equalized(x),
    "posterize": lambda x, a, _: colours.posterized(x, round(8 - 4 * a)),
    "color": lambda x, a, s: colours.colour(x, _factor(a, s)),
    "brightness": lambda x, a, s: colours.brightness(x, _factor(a, s)),
    "solarize": lambda x, a, _: colours.solarized(x, 256 * (1 - a)),
}

_UNDO: dict[
    str, _Apply
] = {  # of what keeps its information; a blend away from a mean that stays is undone by 1 / factor
    "invert": lambda x, _, __: colours.inverted(x),
    "contrast": lambda x, a, s: colours.contrast(x, 1 / _factor(a, s)),
    "rotate": _turn_back,
    "translateX": lambda x, a, s: _across(x, a, -s),
    "translateY": lambda x, a, s: _down(x, a, -s),
    "sharpness": _sharpen_back,
    "shearY": lambda x, a, s: geometry.sheared_down(x, -_SHEAR * a * s.double()),
    "color": lambda x, a, s: colours.colour(x, 1 / _factor(a, s)),
    "brightness": lambda x, a, s: colours.brightness(x, 1 / _factor(a, s)),
}

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
