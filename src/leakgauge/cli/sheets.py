"""The contact sheets beside a report: `pairs.png` for the attack that recovered most, `attacks.png` for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leakgauge.reading.files import write_whole
from leakgauge.report.pictures import comparison_png, pairs_png
from leakgauge.types import AuditReport, Pictures, Summary, cell_name
from leakgauge.verdict.roles import attack_rows

_PAIRS = 16
_COMPARED = 8  # records side by side, one row of pictures for each attack


def write_pairs(report: AuditReport, pictures: Pictures, folder: Path) -> Path | None:
    """`pairs.png`: true over reconstructed, for the cell that recovered most. None for tables."""
    attacked = _attacked(report, pictures)
    if not attacked:
        return None
    best = max(attacked, key=lambda r: (r.success_rate.value, r.metrics["psnr_mean_per_image"].value or 0.0))
    recovered = pictures.recovered[_cell(best)].flatten(0, 1)[:_PAIRS]
    sheet = pairs_png(pictures.true.flatten(0, 1)[:_PAIRS], recovered, _scores(report, best)[:_PAIRS])
    return _written(folder / "pairs.png", sheet)


def write_comparison(report: AuditReport, pictures: Pictures, folder: Path) -> Path | None:
    """`attacks.png`: the first records, and what each attack made of their undefended update. None for one attack."""
    rows = {r.attack: r for r in _attacked(report, pictures) if r.defense == "none"}
    if len(rows) < 2:
        return None
    recovered = {name: pictures.recovered[_cell(row)].flatten(0, 1)[:_COMPARED] for name, row in rows.items()}
    scores = {name: _scores(report, row)[:_COMPARED] for name, row in rows.items()}
    return _written(folder / "attacks.png", comparison_png(pictures.true.flatten(0, 1)[:_COMPARED], recovered, scores))


def _attacked(report: AuditReport, pictures: Pictures) -> list[Summary]:
    """The rows that have pictures to show: neither floors nor attacks on a decoy, and none that broke off."""
    if report.data.kind != "image":
        return []
    tried = [r for r in attack_rows(report.summary, report.findings) if not r.error]
    return [r for r in tried if r.metrics.get("psnr_mean_per_image") and _cell(r) in pictures.recovered]


def _cell(row: Summary) -> str:
    return cell_name(row.attack, row.defense, row.adaptive)


def _scores(report: AuditReport, row: Summary) -> Sequence[dict[str, float | None]]:
    where = (row.attack, row.defense, row.adaptive)
    found = [f for f in report.findings if (f.attack, f.defense, f.adaptive) == where]
    return [dict(record) for f in found for record in f.records]


def _written(path: Path, sheet: bytes) -> Path:
    write_whole(path, sheet, private=True)
    return path
