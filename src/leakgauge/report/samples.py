"""A record that is no picture, as a page shows it: a table's cells, a row of tokens, lines of a series, small pictures.

Each input of a model is one `Panel`. What is right by `leakgauge.metrics.cells` is marked; masks are public and not
shown. Values are in the user's own units.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.metrics.cells import TOLERANCE
from leakgauge.report.pictures import data_uri
from leakgauge.types import CATEGORIES, MASK, DataSpec, Part

_CELLS = 16  # of a table, beside one another
_TOKENS = 256
_CHANNELS = 4
_POINTS = 400  # of a line
_LEAST_SIDE = 5  # px, of what is shown as a picture
WIDTH, HEIGHT, _MARGIN = 320, 56, 3  # of a channel's lines
TABLE, TOKENS, LINES, PICTURE = "table", "tokens", "lines", "picture"


@dataclass(frozen=True)
class Value:
    head: str
    true: str
    recovered: str
    right: bool


@dataclass(frozen=True)
class Channel:
    """Two lines over the same axes, as points of an SVG; no true one where nobody has it."""

    true: str
    recovered: str
    said: str


@dataclass(frozen=True)
class Panel:
    """One input of a record."""

    kind: str
    name: str  # of the model's argument; "" for the only one
    said: str = ""  # "7 of 8 right"
    cells: tuple[Value, ...] = ()
    left: int = 0  # values that are not shown
    channels: tuple[Channel, ...] = ()
    true: str = ""  # data URI
    recovered: str = ""


def parts_of(data: DataSpec) -> tuple[Part, ...]:
    """The inputs of a sample; one of numbers from 0 to 1 where the data has no other."""
    return data.parts or (Part("", data.shape),)


def panels(true: Tensor | None, recovered: Tensor, data: DataSpec) -> tuple[Panel, ...]:
    """Of one record, (*shape) each; without the truth nothing is marked."""
    flat, found = None if true is None else _split(true, data), _split(recovered, data)
    shown = [part for part in parts_of(data) if part.kind != MASK]
    return tuple(_panel(part, None if flat is None else flat[part.name], found[part.name], data) for part in shown)


def _split(sample: Tensor, data: DataSpec) -> dict[str, Tensor]:
    sample = torch.nan_to_num(sample.detach().float().cpu(), nan=0.5).clamp(0, 1)
    return data.split(sample) if data.parts else {"": sample.flatten()}


def _panel(part: Part, true: Tensor | None, found: Tensor, data: DataSpec) -> Panel:
    if part.kind == CATEGORIES:
        text = data.kind == "tokens" and len(part.shape) == 1
        return _values(part, true, found, TOKENS if text else TABLE, _TOKENS if text else _CELLS)
    shape = part.shape
    if len(shape) > 2 and min(shape[-2:]) >= _LEAST_SIDE:
        seen, made = (None if x is None else data_uri(_plane(x, shape)) for x in (true, found))
        return Panel(PICTURE, part.name, true=seen or "", recovered=made or "")
    if len(shape) == 2 or (len(shape) == 1 and data.kind == "series"):
        return Panel(LINES, part.name, channels=_lines(part, true, found), left=max(0, min(shape) - _CHANNELS))
    return _values(part, true, found, TABLE, _CELLS)


def _values(part: Part, true: Tensor | None, found: Tensor, kind: str, most: int) -> Panel:
    ours = part.decode(found).flatten()
    if true is None:
        cells = [Value(str(i + 1), "", _word(part, v), False) for i, v in enumerate(ours[:most].tolist())]
        return Panel(kind, part.name, cells=tuple(cells), left=max(0, len(ours) - most))
    theirs = part.decode(true).flatten()
    right = theirs == ours if part.kind == CATEGORIES else (true - found).abs() <= TOLERANCE
    rows = zip(theirs[:most].tolist(), ours[:most].tolist(), right[:most].tolist(), strict=True)
    cells = [Value(str(i + 1), _word(part, a), _word(part, b), ok) for i, (a, b, ok) in enumerate(rows)]
    said = f"{int(right.sum())} of {len(right)} right"
    return Panel(kind, part.name, said, tuple(cells), max(0, len(ours) - most))


def _word(part: Part, value: float) -> str:
    if part.kind == CATEGORIES:
        return str(int(value))
    return (f"{value:.3f}" if (part.low, part.high) == (0.0, 1.0) else f"{value:.3g}").replace("-", "−")


def _plane(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(C, H, W) of whatever has a height and a width; of a volume the middle plane."""
    planes = flat.reshape(-1, *shape[-2:])
    return planes if len(shape) == 3 else planes[len(planes) // 2 :][:1]


def _lines(part: Part, true: Tensor | None, found: Tensor) -> tuple[Channel, ...]:
    """The longer axis is the one of time."""
    shape = part.shape if len(part.shape) == 2 else (1, *part.shape)
    both = torch.stack([found] if true is None else [true, found]).reshape(-1, *shape)
    both = both if shape[1] >= shape[0] else both.mT
    drawn = []
    for number, rows in enumerate(both.unbind(1)[:_CHANNELS]):
        low, high = float(rows.min()), float(rows.max())
        points = [_points(row, low, high) for row in rows]
        said = f"channel {number + 1}" if both.shape[1] > 1 else ""
        drawn.append(Channel("" if true is None else points[0], points[-1], said))
    return tuple(drawn)


def _points(row: Tensor, low: float, high: float) -> str:
    row = row[:: max(1, len(row) // _POINTS)]
    span, steps = (high - low) or 1.0, max(1, len(row) - 1)
    width, height = WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN
    places = enumerate(((row - low) / span).tolist())
    return " ".join(f"{_MARGIN + width * i / steps:.1f},{_MARGIN + height * (1 - y):.1f}" for i, y in places)
