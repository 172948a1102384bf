"""True beside recovered, best recovered first: pictures for images, numbers for tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from leakgauge.report.cells import Cell, Record, baselines, by_defense, mean_image_scores, ranked
from leakgauge.report.criterion import Criterion, criterion
from leakgauge.report.numbers import number
from leakgauge.report.pictures import data_uri
from leakgauge.types import AuditReport, Pictures

PAIRS_PER_CELL = 12
_PAIRS_IN_ALL = 240  # with many cells each shows fewer, so that the page stays small enough to mail
_GUESSES = 4
_FEATURES = 12

Counts = Callable[[Record], bool]  # is this record recovered, as the verdict counts it?


@dataclass(frozen=True)
class Pair:
    true: str  # data URI
    recovered: str
    scores: tuple[tuple[str, str], ...]
    place: str  # "trial 3" or "trial 3, record 1"
    met: bool  # counts as recovered


@dataclass(frozen=True)
class Comparison:
    """One record of a table, feature by feature."""

    title: str
    place: str
    score: str
    met: bool
    values: tuple[tuple[str, str], ...]  # (true, recovered)


@dataclass(frozen=True)
class Exhibit:
    """What one cell shows, and what it leaves out."""

    cell: Cell
    pairs: tuple[Pair, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    note: str = ""


def exhibits(report: AuditReport, pictures: Pictures | None) -> dict[str, list[Exhibit]]:
    """Per configuration, one exhibit per attack."""
    groups = by_defense(report)
    count = sum(len(group) for group in groups.values())
    most = max(4, min(PAIRS_PER_CELL, _PAIRS_IN_ALL // max(1, count)))
    rule = criterion(report)
    return {
        defense: [_exhibit(report, pictures, cell, rule, most) for cell in group] for defense, group in groups.items()
    }


def guesses(report: AuditReport, pictures: Pictures | None) -> list[Exhibit]:
    """What the baselines produced: the look of knowing nothing."""
    rule = criterion(report)
    return [_exhibit(report, pictures, cell, rule, _GUESSES) for cell in baselines(report)]


def _exhibit(report: AuditReport, pictures: Pictures | None, cell: Cell, rule: Criterion, most: int) -> Exhibit:
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
    floors = {} if cell.baseline else mean_image_scores(report)

    def counts(r: Record) -> bool:
        return rule.recovered(r.scores, floors.get((r.trial, r.record), {}))

    if report.data.kind != "image":
        return Exhibit(cell, comparisons=_comparisons(stored, true, recovered, rule, counts), note=failed)
    shown = stored[:most]
    pairs = tuple(_pair(r, true, recovered, counts) for r in shown)
    rest = len(stored) - len(shown)
    hidden = f"{rest} more not shown; each scored no better than the last one here." if rest else ""
    return Exhibit(cell, pairs, note=f"{hidden} {failed}".strip())


def _pair(r: Record, true: Tensor, recovered: Tensor, counts: Counts) -> Pair:
    scores = (
        ("SSIM", number("ssim", r.scores.get("ssim"))),
        ("PSNR", f"{number('psnr', r.scores.get('psnr'))} dB"),
    )
    images = data_uri(true[r.trial, r.record]), data_uri(recovered[r.trial, r.record])
    return Pair(*images, scores, _place(r, true), counts(r))


def _comparisons(
    stored: list[Record], true: Tensor, recovered: Tensor, rule: Criterion, counts: Counts
) -> tuple[Comparison, ...]:
    ends = {"best recovered": stored[0], "worst recovered": stored[-1]} if stored else {}
    if len(stored) == 1:
        ends.pop("worst recovered")
    return tuple(
        Comparison(
            title,
            _place(r, true),
            f"{rule.metric.upper()} {number(rule.metric, r.scores.get(rule.metric))}",
            counts(r),
            tuple(
                (f"{a:.3f}", f"{b:.3f}")
                for a, b in zip(
                    true[r.trial, r.record].flatten()[:_FEATURES].tolist(),
                    recovered[r.trial, r.record].flatten()[:_FEATURES].tolist(),
                    strict=True,
                )
            ),
        )
        for title, r in ends.items()
    )


def _place(r: Record, true: Tensor) -> str:
    return f"trial {r.trial}" + (f", record {r.record}" if true.shape[1] > 1 else "")
