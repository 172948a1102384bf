"""A picture of packages and their imports, written as SVG when the documentation is built.

One row for each package, in their order; an import always points down. A vertical line belongs to one package, ends in
it with an arrow, and has a dot in the row of each package that imports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

ROW, BOX, HEIGHT = 36, 112, 28  # from row to row, a box's width and height
APART = 6  # an arrow comes in above a row's middle, its own imports leave below it
LANE, FIRST = 17, 20  # between vertical lines, and from the boxes to the first
COLOURS = ("#1f6fb2", "#b2541f", "#2b8a4b", "#8a2b7a", "#8a6d00", "#555b66", "#c0273d", "#127a80")


def drawn(order: Sequence[str], imports: Mapping[str, set[str]]) -> str:
    """SVG: `order` from bottom to top, `imports` of each."""
    rows = {part: row for row, part in enumerate(reversed(order))}
    importers = {part: sorted((p for p in order if part in imports[p]), key=rows.__getitem__) for part in order}
    lanes = _lanes(order, rows, importers)
    colours = {part: COLOURS[number % len(COLOURS)] for number, part in enumerate(order)}
    width = BOX + FIRST + (max(lanes.values()) + 1) * LANE
    height = len(order) * ROW + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="system-ui, sans-serif" font-size="14">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for part in order:  # thin taps first, so that the lines lie above them
        if reach := [_x(lanes[p]) for p in imports[part]]:
            tap = f"M {BOX} {_y(rows[part]) + APART} H {max(reach)}"
            parts.append(f'<path d="{tap}" stroke="#9aa3af" stroke-width="1" fill="none"/>')
    parts += [_line(part, lanes[part], rows, importers[part], colours[part]) for part in order if importers[part]]
    for part in order:
        y = _y(rows[part])
        parts.append(
            f'<rect x="1" y="{y - HEIGHT / 2}" width="{BOX - 2}" height="{HEIGHT}" rx="4" fill="#f4f6f9"'
            f' stroke="{colours[part]}" stroke-width="1.5"/>'
            f'<text x="{BOX / 2}" y="{y + 5}" text-anchor="middle" fill="#16202c">{escape(part)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _lanes(order: Sequence[str], rows: Mapping[str, int], importers: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The vertical line of each imported package: short ones near the boxes, none above another."""
    taken: list[list[tuple[int, int]]] = []
    lanes = {}
    for part in sorted((p for p in order if importers[p]), key=lambda p: rows[p] - rows[importers[p][0]]):
        top, bottom = rows[importers[part][0]], rows[part]
        free = (n for n, spans in enumerate(taken) if all(bottom < a or b < top for a, b in spans))
        lanes[part] = next(free, len(taken))
        if lanes[part] == len(taken):
            taken.append([])
        taken[lanes[part]].append((top, bottom))
    return lanes


def _line(part: str, lane: int, rows: Mapping[str, int], importers: Sequence[str], colour: str) -> str:
    x, y, top = _x(lane), _y(rows[part]) - APART, _y(rows[importers[0]]) + APART
    dots = "".join(f'<circle cx="{x}" cy="{_y(rows[p]) + APART}" r="4" fill="{colour}"/>' for p in importers)
    return (
        f"<g><title>{escape(part)} is imported by {escape(', '.join(importers))}</title>"
        f'<path d="M {x} {top} V {y} H {BOX + 7}" stroke="{colour}" stroke-width="2" fill="none"/>'
        f'<path d="M {BOX} {y} l 8 -4.5 v 9 z" fill="{colour}"/>{dots}</g>'
    )


def _x(lane: int) -> int:
    return BOX + FIRST + lane * LANE


def _y(row: int) -> float:
    return 4 + (row + 0.5) * ROW
