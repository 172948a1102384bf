"""The pictures that were recovered best, kept with each run and shown on one sheet beside a drawn table.

Victims of recipes come from public data sets, so their pictures may be kept.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from leakgauge.lab.reproduce.measured import Entry
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Run, Table
from leakgauge.lab.reproduce.running import findings_of, results_of
from leakgauge.reading.files import write_whole

_SIDE, _GAP, _LABEL, _CAPTION = 64, 8, 300, 14  # px on the sheet
_COLOURS = 256  # of the whole sheet: a third of the size

Shown = Mapping[str, Any]  # one of what `_running.most_exposed` keeps


def file_of(table: Table) -> str:
    return f"{table.id}-exposed.png"


def write(folder: Path, recipe: Recipe, asked: Sequence[Table], entries: Sequence[Entry], runs: Path) -> None:
    """Write the sheet of each drawn table, from finished runs of full size and from the smaller ones in `asked`.

    It shows the cells with the most victims. An existing sheet is replaced only if all of these can be shown.
    """
    for table in (t for t in recipe.tables if t.drawn):
        measured = {e.place[:3]: e.trials for e in entries if e.table == table.id}
        rows: dict[tuple[str, str, str], Sequence[Shown]] = {}
        for each in (*(t for t in asked if t.id == table.id), table):
            for cell in each.cells:
                place, shown = (table.id, cell.row, cell.column), _shown(cell, runs)
                if shown and isinstance(cell.run, Run) and measured.get(place) == cell.run.victims:
                    rows[place] = shown
        best = {place for place, trials in measured.items() if trials == max(measured.values())}
        if rows and best <= rows.keys():
            ordered: dict[tuple[str, ...], tuple[str, Sequence[Shown]]] = {}
            for cell in table.cells:
                place = (table.id, cell.row, cell.column)
                shown = rows[place] if place in best else ()
                key = tuple(each["recovered"] for each in shown)
                if shown:  # cells with other scores of the same run share a line
                    ordered.setdefault(key, (f"{cell.column}, {cell.row}", shown))
            write_whole(folder / file_of(table), sheet(list(ordered.values())))


def _shown(cell: Cell, runs: Path) -> Sequence[Shown]:
    results = results_of(cell.run, runs)
    findings = findings_of(cell, results) if results else ()
    if not results or not findings:
        return ()
    own = (findings[0].attack, findings[0].adaptive)
    found = [shown for r in results for shown in r.exposed if (shown["attack"], shown["adaptive"]) == own]
    return sorted(found, key=lambda shown: -shown["psnr"])[:3]


def sheet(rows: Sequence[tuple[str, Sequence[Shown]]]) -> bytes:
    """A PNG: one line for each cell, its most exposed pictures true and recovered side by side."""
    pair = 2 * _SIDE + 3 * _GAP
    height = _SIDE + _CAPTION + _GAP
    most = max(len(shown) for _, shown in rows)
    page = Image.new("RGB", (_LABEL + most * pair, _GAP + height * len(rows)), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(11)
    for number, (label, shown) in enumerate(rows):
        top = _GAP + number * height
        pen.text((_GAP, top + _SIDE // 2 - 6), label, "black", font)
        for place, one in enumerate(shown):
            left = _LABEL + place * pair
            for step, name in enumerate(("true", "recovered")):
                page.paste(_picture(one[name]), (left + step * (_SIDE + _GAP // 2), top))
            pen.text((left, top + _SIDE + 1), f"{one['psnr']:.1f} dB", "black", font)
    out = io.BytesIO()
    page.quantize(_COLOURS).save(out, "PNG", optimize=True)
    return out.getvalue()


def _picture(text: str) -> Image.Image:
    small = Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")
    return small.resize((_SIDE, _SIDE), Image.Resampling.NEAREST)
