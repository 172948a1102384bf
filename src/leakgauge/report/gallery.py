"""True beside recovered, the most exposed first: pictures for images, else what `report.samples` makes of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.metrics.criterion import Criterion
from leakgauge.report.cells import Cell, Record, baselines, by_defense, criterion, ranked
from leakgauge.report.numbers import heading, number
from leakgauge.report.objectives import SmallCurve, small_curve
from leakgauge.report.pictures import SHOWN_SIDE, data_uri
from leakgauge.report.samples import Panel, panels
from leakgauge.types import ONE_CLASS, AuditReport, DataSpec, Finding, Pictures

_GUESSES = 4
_NOTES = 6  # of an attack on targets
_FRAME_SIDE = 64  # px, of a picture on the way
_MORE_ROWS = 20  # of a table, between the best and the worst recovered one
PAIRS_PER_CELL = 12
BYTES = 7_000_000  # for all pictures together; the page with its tables and curves stays below 10 MB
_SIDES = (SHOWN_SIDE, 96, 64, 48, 32)
_SHOWN_IN_ALL = 240  # in the open; the rest waits behind a click
_LEAST = 4
_MORE_PER_CELL = 60
_PNG, _MARKUP = 120, 1000  # bytes: the head of a PNG, and the words and the curve around a pair


@dataclass(frozen=True)
class Item:
    """One record: two pictures, or the panels of its inputs."""

    place: str  # "trial 3" or "trial 3, record 1"
    rank: str  # "2 of 48": its place from the most exposed to the least
    scores: tuple[tuple[str, str], ...]
    met: bool  # counts as recovered
    doubt: str  # why a score that meets the criterion does not count
    curve: SmallCurve | None  # of the attack's own objective
    title: str = ""  # "best recovered", of a table
    true: str = ""  # data URI
    recovered: str = ""
    film: tuple[tuple[str, str], ...] = ()  # data URI and step of pictures on the way, where they were kept
    panels: tuple[Panel, ...] = ()  # of a record that is no picture


@dataclass(frozen=True)
class Exhibit:
    """What one cell shows, what waits behind a click, and what it leaves out."""

    cell: Cell
    shown: tuple[Item, ...] = ()
    folded: tuple[Item, ...] = ()  # less exposed than those shown; of a table, those between the two ends
    note: str = ""


@dataclass(frozen=True)
class Allowance:
    side: int  # px, the largest a picture is shown at
    shown: int  # pairs per cell in the open
    more: int  # pairs per cell behind a click


def allowance(cells: int, shape: Sequence[int]) -> Allowance:
    """For so many cells of samples (C, H, W); counts as if no picture could be compressed."""
    cells = max(1, cells)

    def fitting(side: int) -> int:
        _, height, width = shape
        channels = 3 if shape[0] == 3 else 1
        scale = min(1.0, side / max(height, width))
        picture = channels * round(height * scale) * round(width * scale) + _PNG
        return int(BYTES / (2 * picture * 4 / 3 + _MARKUP) / cells)

    side = next((s for s in _SIDES if fitting(s) >= _LEAST), _SIDES[-1])
    pairs = fitting(side)
    shown = max(1, min(PAIRS_PER_CELL, pairs, max(_LEAST, _SHOWN_IN_ALL // cells)))
    return Allowance(side, shown, max(0, min(_MORE_PER_CELL, pairs - shown)))


def room_for(report: AuditReport) -> Allowance:
    if report.data.kind != "image":
        return Allowance(0, 0, 0)
    return allowance(sum(len(group) for group in by_defense(report).values()), report.data.shape)


def exhibits(report: AuditReport, pictures: Pictures | None) -> dict[str, list[Exhibit]]:
    """Per configuration, one exhibit per attack."""
    room = room_for(report)
    return {d: [_exhibit(report, pictures, cell, room) for cell in group] for d, group in by_defense(report).items()}


def guesses(report: AuditReport, pictures: Pictures | None) -> list[Exhibit]:
    """What the baselines produced: the look of knowing nothing."""
    room = Allowance(room_for(report).side, _GUESSES, 0)
    return [_exhibit(report, pictures, cell, room) for cell in baselines(report)]


def _exhibit(report: AuditReport, pictures: Pictures | None, cell: Cell, room: Allowance) -> Exhibit:
    if cell.row.error is not None:
        return Exhibit(cell, note=f"Could not run: {cell.row.error}")
    failed = f"{cell.row.failed} of {cell.row.trials} trials failed." if cell.row.failed else ""
    if pictures is None:
        return Exhibit(cell, note=f"{failed} The samples were not kept with this report.".strip())
    if cell.name not in pictures.recovered:
        notes = dict.fromkeys(f"trial {f.trial}: {f.note}" for f in cell.findings if f.note)
        read = f" It says: {'; '.join([*notes][:_NOTES])}." if notes and report.data.target != ONE_CLASS else ""
        return Exhibit(cell, note=f"{failed} This attack claims no records, so there is nothing to show.{read}".strip())
    recovered, true, rule = pictures.recovered[cell.name], pictures.true, criterion(report)  # (T, N, *shape)
    # A trial may be scored but not stored, for instance in a run that resumed on another machine.
    trials, records = min(len(true), len(recovered)), min(true.shape[1], recovered.shape[1])
    stored = [r for r in ranked(cell, rule) if r.trial < trials and r.record < records]
    hall = _Hall(cell, stored, true, recovered, pictures.film.get(cell.name), rule, room.side, report.data)
    if report.data.kind == "image":
        first, more = _chosen(len(stored), room)
        shown, folded = (tuple(hall.pair(k) for k in picks) for picks in (first, more))
        what = f" are not on this page, all less exposed than the first {len(first)}."
    else:  # the two ends in the open; of those between them the most exposed behind a click
        last = len(stored) - 1
        ends = {0: "best recovered"} | ({last: "worst recovered"} if last > 0 else {}) if stored else {}
        shown = tuple(hall.features(k, title) for k, title in ends.items())
        folded = tuple(hall.features(k, "recovered") for k in range(1, min(last, _MORE_ROWS + 1)))
        what = " are not on this page."
    left = len(stored) - len(shown) - len(folded)
    hidden = f"{left} of {len(stored)} records{what}" if left else ""
    return Exhibit(cell, shown, folded, note=f"{hidden} {failed}".strip())


def _chosen(count: int, room: Allowance) -> tuple[Sequence[int], Sequence[int]]:
    """The most exposed, and of the others as many as there is room for, evenly down to the least exposed one."""
    shown = min(room.shown, count)
    picks = np.linspace(shown, count - 1, min(room.more, count - shown))
    return range(shown), [round(p) for p in picks.tolist()]


@dataclass(frozen=True)
class _Hall:
    """What all records of one cell are shown with."""

    cell: Cell
    stored: Sequence[Record]
    true: Tensor  # (T, N, *shape)
    recovered: Tensor
    film: Tensor | None  # (T, F, N, *shape)
    rule: Criterion
    side: int
    data: DataSpec

    def pair(self, k: int) -> Item:
        r = self.stored[k]
        ssim, psnr = (number(name, r.scores.get(name)) for name in ("ssim", "psnr"))
        scores = (("SSIM", ssim), ("PSNR", f"{psnr} dB")) if r.claimed else (("Not claimed", ""),)
        true, recovered = (data_uri(images[r.trial, r.record], self.side) for images in (self.true, self.recovered))
        return self._item(k, scores=scores, true=true, recovered=recovered, film=self._strip(r))

    def features(self, k: int, title: str) -> Item:
        r, metric = self.stored[k], self.rule.metric
        shown = panels(self.true[r.trial, r.record], self.recovered[r.trial, r.record], self.data)
        scores = ((heading(metric)[0], number(metric, r.scores.get(metric))),)
        return self._item(k, title=title, scores=scores, panels=shown)

    def _item(self, k: int, **shown: Any) -> Item:
        r, cell, met = self.stored[k], self.cell, self.rule.met(self.stored[k].scores)
        counts = met and r.credible is True and not cell.control
        doubtful = met and not (counts or cell.control or cell.baseline)  # the scores of these count for nothing anyway
        return Item(
            place=f"trial {r.trial}" + (f", record {r.record}" if self.true.shape[1] > 1 else ""),
            rank=f"{k + 1} of {len(self.stored)}",
            met=counts,
            doubt=("undecided" if r.credible is None else "not credible") if doubtful else "",
            curve=small_curve(self._finding(r).trace),
            **shown,
        )

    def _finding(self, r: Record) -> Finding:
        return next(f for f in self.cell.findings if f.trial == r.trial)

    def _strip(self, r: Record) -> tuple[tuple[str, str], ...]:
        """The frames of a record up to where its search ended: what follows shows the same."""
        steps = self._finding(r).film
        if self.film is None or not steps:
            return ()
        frames = self.film[r.trial, :, r.record]  # (F, *shape)
        moving = [k for k in range(len(steps)) if not torch.equal(frames[k], frames[-1])]
        last, side = min(len(steps) - 1, max(moving, default=-1) + 1), min(self.side, _FRAME_SIDE)
        return tuple((data_uri(frames[k], side), "end" if k == last else f"{steps[k]}") for k in range(last + 1))
