"""Two audits on one page: verdicts, what differs in the set-up, differences with intervals, both tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leakgauge.report.cells import CONTROL_NOTE, CREDIBLE_NOTE, Cell, cells
from leakgauge.report.comparing import Comparison, Difference, compare, settled
from leakgauge.report.html import SCRIPT, rendered
from leakgauge.report.numbers import NOTHING, bounds, number, percent, rate_bounds
from leakgauge.report.rows import columns, table_rows
from leakgauge.report.subject import title_of
from leakgauge.types import AuditReport, Interval
from leakgauge.verdict.summary import headline


def to_comparison(first: AuditReport, second: AuditReport, names: tuple[str, str]) -> str:
    """`names`: what the two audits are called on the page, their folders for instance."""
    found = compare(first, second)
    page = {
        "script": SCRIPT,
        "credible_note": CREDIBLE_NOTE,
        "found": found,
        "audits": [_audit(report, name) for report, name in zip((first, second), names, strict=True)],
        "rows": [_row(d, found) for d in found.differences],
        "score_name": found.score.upper(),
    }
    return rendered("comparison.html.j2", page)


def _audit(report: AuditReport, name: str) -> dict[str, Any]:
    where = report.environment
    return {
        "name": name,
        "title": title_of(report),
        "word": headline(report.verdict),
        "sentence": report.verdict.sentence,
        "interrupted": report.interrupted,
        "measured": f"leakgauge {where.get('leakgauge', '')} on {where.get('device', '')}",
        "columns": columns(report),
        "control_note": CONTROL_NOTE if any(cell.control for cell in cells(report)) else "",
        "rows": table_rows(report),
    }


def _row(d: Difference, found: Comparison) -> dict[str, Any]:
    style = "adaptive" if d.adaptive else "plain"
    metric = f"{found.score}_mean_per_image"
    first, second = (next((f.spec for f in cell.findings), "") if cell else "" for cell in (d.first, d.second))
    told = [f"first: {first}", f"second: {second}"] if first and second and first != second else []
    return {
        "attack": d.attack,
        "style": style,
        "defense": d.defense,
        "specs": told,
        "first": _measured(d.first, metric),
        "second": _measured(d.second, metric),
        "rate": _gap(d.rate, lambda v: f"{100 * v:+.1f}".replace("-", "−")),
        "rate_key": d.rate.value,
        "rate_settled": settled(d.rate),
        "score": _gap(d.score, lambda v: _signed(metric, v)),
        "score_key": d.score.value,
        "score_settled": settled(d.score),
    }


def _measured(cell: Cell | None, metric: str) -> dict[str, Any]:
    """One audit's side: share recovered and mean score, each with its interval."""
    if cell is None:
        return {"rate": "not measured", "score": NOTHING, "small": (), "score_small": "", "key": None}
    if cell.row.error is not None:
        return {"rate": "could not run", "score": NOTHING, "small": (), "score_small": "", "key": None}
    rate, mean = cell.row.success_rate, cell.row.metrics.get(metric, Interval(None, None, None))
    counted = [rate_bounds(rate), f"{rate.recovered} of {rate.records}"]
    return {
        "rate": percent(rate.value) if cell.claims_records else NOTHING,
        "small": counted if cell.claims_records else ["claims no records"],
        "score": number(metric, mean.value),
        "score_small": bounds(metric, mean),
        "key": rate.value if cell.claims_records else None,
    }


def _gap(interval: Interval, write: Callable[[float], str]) -> tuple[str, str]:
    if interval.value is None:
        return NOTHING, ""
    small = "" if interval.low is None or interval.high is None else f"[{write(interval.low)}, {write(interval.high)}]"
    return write(interval.value), small


def _signed(metric: str, value: float) -> str:
    text = number(metric, value)
    return text if text.startswith("−") else f"+{text}"
