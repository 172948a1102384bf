"""Files beside a report: sheets of true and recovered pictures; without the truth, everything that was recovered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from leakgauge.reading.files import write_whole
from leakgauge.report.blind_page import claimed
from leakgauge.report.pictures import comparison_png, pairs_png, sheet_png
from leakgauge.types import BLANK, NO_LABEL, AuditReport, Finding, Pictures, Summary, cell_name
from leakgauge.verdict.roles import attack_rows

_PAIRS = 16
_COMPARED = 8  # records side by side, one row of pictures for each attack
_SHOWN = 64  # pictures of one attack that have no truth beside them


def write_pairs(report: AuditReport, pictures: Pictures, folder: Path) -> Path | None:
    """`pairs.png`: true over reconstructed, for the cell that recovered most. None for tables."""
    attacked = _attacked(report, pictures)
    if not attacked:
        return None
    best = max(attacked, key=lambda r: (r.success_rate.value, r.metrics["psnr_mean_per_image"].value or 0.0))
    true, recovered = (images.flatten(0, 1)[:_PAIRS] for images in (pictures.true, pictures.recovered[_cell(best)]))
    path = folder / "pairs.png"
    write_whole(path, pairs_png(true, recovered, _scores(report, best)[:_PAIRS]), private=True)
    return path


def write_attacks(report: AuditReport, pictures: Pictures, folder: Path) -> None:
    """`attacks.png`: the first records, and what each attack made of their undefended update. None for one attack."""
    rows = {r.attack: r for r in _attacked(report, pictures) if r.defense == "none"}
    if len(rows) < 2:
        return
    recovered = {name: pictures.recovered[_cell(row)].flatten(0, 1)[:_COMPARED] for name, row in rows.items()}
    scores = {name: _scores(report, row)[:_COMPARED] for name, row in rows.items()}
    sheet = comparison_png(pictures.true.flatten(0, 1)[:_COMPARED], recovered, scores)
    write_whole(folder / "attacks.png", sheet, private=True)


def _attacked(report: AuditReport, pictures: Pictures) -> list[Summary]:
    """The rows that have pictures to show: neither floors nor attacks on a decoy, and none that broke off."""
    if report.data.kind != "image":
        return []
    tried = [r for r in attack_rows(report.summary, report.findings) if not r.error]
    return [r for r in tried if r.metrics.get("psnr_mean_per_image") and _cell(r) in pictures.recovered]


def _cell(of: Summary | Finding) -> str:
    return cell_name(of.attack, of.defense, of.adaptive)


def _scores(report: AuditReport, row: Summary) -> Sequence[dict[str, float | None]]:
    return [dict(record) for f in report.findings if _cell(f) == _cell(row) for record in f.records]


def write_reconstructions(report: AuditReport, pictures: Pictures, folder: Path, *, single: bool = False) -> list[Path]:
    """What each attack made of updates whose samples nobody has: as tensors, and as a sheet of pictures beside them.

    `reconstruction-ATTACK.safetensors`, for its owner only; no ATTACK for a `single` one. Of several answers all are
    kept, since nobody can say which one is closest.
    """
    cells: dict[str, list[Finding]] = {}
    for f in report.findings:
        if f.error is None:
            cells.setdefault(_cell(f), []).append(f)
    files = []
    for name, found in cells.items():
        stem = "reconstruction" if single and len(cells) == 1 else _stem(found[0])
        recovered = pictures.recovered.get(name)
        files.append(folder / f"{stem}.safetensors")
        write_whole(files[-1], save(_tensors(recovered, found, report.scenario.batch_size)), private=True)
        if report.data.kind == "image" and recovered is not None and len(rows := recovered[claimed(recovered)]):
            write_whole(folder / f"{stem}.png", sheet_png(rows[:_SHOWN].nan_to_num(0.5).clamp(0, 1)), private=True)
    return files


def _stem(finding: Finding) -> str:
    label = "".join(c if c.isalnum() or c in "-_.=," else "-" for c in finding.attack.replace(" #", "-"))
    return f"reconstruction-{label}{'-adaptive' * finding.adaptive}"


def _tensors(recovered: Tensor | None, found: list[Finding], samples: int) -> dict[str, Tensor]:
    """inputs and claimed (T, N, ...), answers (T, A, N, ...) where there are several, labels (T, N) where any are."""
    kept: dict[str, Tensor] = {}
    if recovered is not None:
        first, answers = recovered[:, :samples], recovered[:, samples:]
        kept |= {"inputs": first.nan_to_num(BLANK).contiguous(), "claimed": claimed(first).contiguous()}
        if answers.shape[1]:
            kept["answers"] = answers.reshape(len(answers), -1, samples, *answers.shape[2:]).contiguous()
    if all(f.labels is not None for f in found):
        kept["labels"] = torch.tensor([[NO_LABEL if k is None else k for k in f.labels or ()] for f in found])
    return kept
