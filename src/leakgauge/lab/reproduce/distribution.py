"""A table of quantiles as a picture, drawn from `measured.json` alone: one strip for each cell.

A mean hides the record that is recovered best; the end of each strip shows it. Plain SVG text: the same measurements
give the same file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from leakgauge.lab.reproduce.measured import Entry
from leakgauge.lab.reproduce.recipe import Recipe, Table
from leakgauge.reading.files import write_whole

_QUANTILE = re.compile(r".*_quantile\(([0-9.]+)\)")
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 860, 390, 70, 34, 26
_INK, _PALE, _ACCENT = "#30363d", "#8b949e", "#1f6fb4"  # readable on white, which the picture brings along
_TICK = 5  # dB


def write(folder: Path, recipe: Recipe, entries: Sequence[Entry]) -> None:
    """`TABLE.svg` for each table that is drawn and has been measured."""
    for table in recipe.tables:
        picture = draw(table, entries)
        if picture:
            write_whole(folder / file_of(table), picture.encode())


def file_of(table: Table) -> str:
    return f"{table.id}.svg"


def draw(table: Table, entries: Sequence[Entry]) -> str:
    """The SVG; empty for a table that is not drawn or has no measured cell."""
    strips = _strips(table, entries) if table.drawn else {}
    if not strips:
        return ""
    values = [v for at in strips.values() for v in at.values()]
    low = _TICK * int(min(values) // _TICK)
    high = max(low + _TICK, _TICK * -int(-max(values) // _TICK))

    def x(value: float) -> float:
        return round(_LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT), 1)

    height = _TOP + _ROW * len(strips) + 34
    bottom = height - 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{_INK}">',
        f"<title>{escape(table.title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    step = _TICK if high - low <= 8 * _TICK else 2 * _TICK
    for tick in range(low, high + 1, step):
        parts.append(f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{_TOP}" y2="{bottom}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{x(tick)}" y="{bottom + 16}" text-anchor="middle">{tick} dB</text>')
    parts.append(f'<text x="{_WIDTH - 6}" y="20" text-anchor="end" fill="{_PALE}">most exposed</text>')
    for number, (label, at) in enumerate(strips.items()):
        parts += _strip(label, {q: x(v) for q, v in at.items()}, max(at.values()), _TOP + _ROW * number + _ROW / 2)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _strip(label: str, at: Mapping[float, float], largest: float, y: float) -> list[str]:
    """One line of the picture; `at` has the x of each quantile."""
    middle = min(at, key=lambda q: abs(q - 50))
    parts = [f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(label)}</text>']
    for first, last, thick, colour in ((0, 100, 1.5, _PALE), (10, 90, 4, _PALE), (25, 75, 12, _ACCENT)):
        if first in at and last in at:
            parts.append(
                f'<line x1="{at[first]}" x2="{at[last]}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="{thick}"/>'
            )
    parts.append(
        f'<line x1="{at[middle]}" x2="{at[middle]}" y1="{y - 8}" y2="{y + 8}" stroke="{_INK}" stroke-width="2"/>'
    )
    parts.append(f'<circle cx="{max(at.values())}" cy="{y}" r="3.5" fill="{_INK}"/>')
    parts.append(f'<text x="{_WIDTH - 6}" y="{y + 4}" text-anchor="end" fill="{_PALE}">{largest:.1f}</text>')
    return parts


def _strips(table: Table, entries: Sequence[Entry]) -> dict[str, dict[float, float]]:
    """Cell -> quantile -> value, column by column."""
    found: dict[str, dict[float, float]] = {}
    for cell in sorted(table.cells, key=lambda c: [d.column for d in table.cells].index(c.column)):
        for entry in entries:
            at = _QUANTILE.fullmatch(entry.statistic)
            if at and entry.value is not None and entry.place[:3] == (table.id, cell.row, cell.column):
                label = f"{cell.column}, {cell.row} (n = {entry.trials})"
                found.setdefault(label, {})[float(at[1])] = entry.value
    return found
