"""True beside recovered, the most exposed first: pictures for images, numbers for tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.metrics.criterion import Criterion
from leakgauge.report.allowance import Allowance, allowance
from leakgauge.report.cells import Cell, Record, baselines, by_defense, criterion, ranked
from leakgauge.report.numbers import number
from leakgauge.report.objectives import SmallCurve, small_curve
from leakgauge.report.pictures import data_uri
from leakgauge.types import AuditReport, Pictures

_GUESSES = 4
_FEATURES = 12
_FRAME_SIDE = 64  # px, of a picture on the way
_MORE_ROWS = 20  # of a table, between the best and the worst recovered one

Counts = Callable[[Record], bool]  # is this record recovered, as the verdict counts it?


@dataclass(frozen=True)
class Pair:
    true: str  # data URI
    recovered: str
    scores: tuple[tuple[str, str], ...]
    place: str  # "trial 3" or "trial 3, record 1"
    rank: str  # "2 of 48": its place from the most exposed to the least
    met: bool  # counts as recovered
    curve: SmallCurve | None  # of the attack's own objective
    doubt: str = ""  # why a score that meets the criterion does not count
    film: tuple[tuple[str, str], ...] = ()  # data URI and step of pictures on the way, where they were kept


@dataclass(frozen=True)
class Comparison:
    """One record of a table, feature by feature."""

    title: str
    place: str
    rank: str
    score: str
    met: bool
    values: tuple[tuple[str, str], ...]  # (true, recovered)
    curve: SmallCurve | None
    doubt: str = ""


@dataclass(frozen=True)
class Exhibit:
    """What one cell shows, what waits behind a click, and what it leaves out."""

    cell: Cell
    pairs: tuple[Pair, ...] = ()
    more: tuple[Pair, ...] = ()  # less exposed than the pairs
    comparisons: tuple[Comparison, ...] = ()
    more_comparisons: tuple[Comparison, ...] = ()  # between the two ends
    note: str = ""


@dataclass(frozen=True)
class _Hall:
    """What all records of one cell are shown with."""

    true: Tensor  # (T, N, *shape)
    recovered: Tensor
    counts: Counts
    curves: Mapping[int, SmallCurve | None]  # trial -> its objective
    rule: Criterion
    side: int
    film: Tensor | None  # (T, F, N, *shape)
    film_steps: Mapping[int, tuple[int, ...]]  # trial -> steps of its frames
    judged: bool  # False for floors and controls, whose scores count for nothing anyway

    def doubt(self, r: Record) -> str:
        if not self.judged or self.counts(r) or not self.rule.met(r.scores):
            return ""
        return "undecided" if r.credible is None else "not credible"

    def place(self, r: Record) -> str:
        return f"trial {r.trial}" + (f", record {r.record}" if self.true.shape[1] > 1 else "")


def exhibits(report: AuditReport, pictures: Pictures | None) -> dict[str, list[Exhibit]]:
    """Per configuration, one exhibit per attack."""
    groups = by_defense(report)
    room = room_for(report)
    rule = criterion(report)
    return {
        defense: [_exhibit(report, pictures, cell, rule, room) for cell in group] for defense, group in groups.items()
    }


def guesses(report: AuditReport, pictures: Pictures | None) -> list[Exhibit]:
    """What the baselines produced: the look of knowing nothing."""
    rule = criterion(report)
    room = Allowance(room_for(report).side, _GUESSES, 0)
    return [_exhibit(report, pictures, cell, rule, room) for cell in baselines(report)]


def room_for(report: AuditReport) -> Allowance:
    if report.data.kind != "image":
        return Allowance(0, 0, 0)
    return allowance(sum(len(group) for group in by_defense(report).values()), report.data.shape)


def _exhibit(report: AuditReport, pictures: Pictures | None, cell: Cell, rule: Criterion, room: Allowance) -> Exhibit:
    if cell.row.error is not None:
        return Exhibit(cell, note=f"Could not run: {cell.row.error}")
    failed = f"{cell.row.failed} of {cell.row.trials} trials failed." if cell.row.failed else ""
    if pictures is None:
        return Exhibit(cell, note=f"{failed} The samples were not kept with this report.".strip())
    if cell.name not in pictures.recovered:
        return Exhibit(cell, note=f"{failed} This attack claims no records, so there is nothing to show.".strip())
    recovered, true = pictures.recovered[cell.name], pictures.true  # (T, N, *shape)
    # A trial may be scored but not stored, for instance in a run that resumed on another machine.
    stored = [
        r
        for r in ranked(cell, rule)
        if r.trial < min(len(true), len(recovered)) and r.record < min(true.shape[1], recovered.shape[1])
    ]

    def counts(r: Record) -> bool:
        return not cell.control and r.credible is True and rule.met(r.scores)

    curves = {f.trial: small_curve(f.trace) for f in cell.findings}
    steps = {f.trial: f.film for f in cell.findings}
    film, judged = pictures.film.get(cell.name), not (cell.control or cell.baseline)
    hall = _Hall(true, recovered, counts, curves, rule, room.side, film, steps, judged)
    if report.data.kind != "image":
        return _table_exhibit(cell, stored, hall, failed)
    first, more = _chosen(len(stored), room)
    left = len(stored) - len(first) - len(more)
    hidden = f"{left} of {len(stored)} records are not on this page, all less exposed than the first {len(first)}."
    shown, folded = (tuple(_pair(k, stored, hall) for k in picks) for picks in (first, more))
    return Exhibit(cell, shown, folded, note=f"{hidden if left else ''} {failed}".strip())


def _chosen(count: int, room: Allowance) -> tuple[Sequence[int], Sequence[int]]:
    """The most exposed, and of the others as many as there is room for, evenly down to the least exposed one."""
    shown = min(room.shown, count)
    picks = np.linspace(shown, count - 1, min(room.more, count - shown))
    return range(shown), [round(p) for p in picks.tolist()]


def _pair(k: int, stored: Sequence[Record], hall: _Hall) -> Pair:
    r = stored[k]
    ssim, psnr = number("ssim", r.scores.get("ssim")), number("psnr", r.scores.get("psnr"))
    scores = (("SSIM", ssim), ("PSNR", f"{psnr} dB")) if r.claimed else (("Not claimed", ""),)
    true, recovered = (data_uri(images[r.trial, r.record], hall.side) for images in (hall.true, hall.recovered))
    rank = f"{k + 1} of {len(stored)}"
    return Pair(
        true,
        recovered,
        scores,
        hall.place(r),
        rank,
        hall.counts(r),
        hall.curves[r.trial],
        hall.doubt(r),
        film=_strip(r, hall),
    )


def _strip(r: Record, hall: _Hall) -> tuple[tuple[str, str], ...]:
    """The frames of a record up to where its search ended: what follows shows the same."""
    steps = hall.film_steps[r.trial]
    if hall.film is None or not steps:
        return ()
    frames = hall.film[r.trial, :, r.record]  # (F, *shape)
    moving = [k for k in range(len(steps)) if not torch.equal(frames[k], frames[-1])]
    shown = range(min(len(steps), (moving[-1] if moving else -1) + 2))
    side = min(hall.side, _FRAME_SIDE)
    return tuple((data_uri(frames[k], side), "end" if k == shown[-1] else f"{steps[k]}") for k in shown)


def _table_exhibit(cell: Cell, stored: Sequence[Record], hall: _Hall, note: str) -> Exhibit:
    """The two ends in the open; of those between them the most exposed behind a click."""
    last = len(stored) - 1
    ends = {0: "best recovered", **({last: "worst recovered"} if last > 0 else {})} if stored else {}
    between = range(1, min(last, _MORE_ROWS + 1))
    left = max(0, last - 1 - len(between))
    return Exhibit(
        cell,
        comparisons=tuple(_comparison(k, title, stored, hall) for k, title in ends.items()),
        more_comparisons=tuple(_comparison(k, "recovered", stored, hall) for k in between),
        note=f"{f'{left} of {len(stored)} records are not on this page.' if left else ''} {note}".strip(),
    )


def _comparison(k: int, title: str, stored: Sequence[Record], hall: _Hall) -> Comparison:
    r, metric = stored[k], hall.rule.metric
    rows = (images[r.trial, r.record].flatten()[:_FEATURES].tolist() for images in (hall.true, hall.recovered))
    return Comparison(
        title,
        hall.place(r),
        f"{k + 1} of {len(stored)}",
        f"{metric.upper()} {number(metric, r.scores.get(metric))}",
        hall.counts(r),
        tuple((f"{a:.3f}", f"{b:.3f}") for a, b in zip(*rows, strict=True)),
        hall.curves[r.trial],
        hall.doubt(r),
    )
