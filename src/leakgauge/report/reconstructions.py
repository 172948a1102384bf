"""What each attack made of updates whose samples nobody has: as tensors, and as a sheet of pictures.

Of several answers all are kept, since nobody can say which one is closest.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from leakgauge.reading.files import write_whole
from leakgauge.report.blind_page import claimed
from leakgauge.report.pictures import sheet_png
from leakgauge.types import BLANK, NO_LABEL, AuditReport, Finding, Pictures, cell_name

_SHOWN = 64  # pictures on a sheet


def write_reconstructions(report: AuditReport, pictures: Pictures, folder: Path, *, single: bool = False) -> list[Path]:
    """`reconstruction-ATTACK.safetensors`, for its owner only, and a sheet beside it; no ATTACK for a `single` one."""
    cells: dict[str, list[Finding]] = {}
    for f in report.findings:
        if f.error is None:
            cells.setdefault(cell_name(f.attack, f.defense, f.adaptive), []).append(f)
    files = []
    for name, found in cells.items():
        stem = "reconstruction" if single and len(cells) == 1 else _stem(found[0])
        recovered = pictures.recovered.get(name)
        tensors = _tensors(recovered, found, report.scenario.batch_size)
        files.append(folder / f"{stem}.safetensors")
        write_whole(files[-1], save(tensors), private=True)
        if report.data.kind == "image" and recovered is not None:
            rows = recovered[claimed(recovered)]
            if len(rows):
                write_whole(folder / f"{stem}.png", sheet_png(rows[:_SHOWN].nan_to_num(0.5).clamp(0, 1)), private=True)
    return files


def _stem(finding: Finding) -> str:
    label = "".join(c if c.isalnum() or c in "-_.=," else "-" for c in finding.attack.replace(" #", "-"))
    return f"reconstruction-{label}{'-adaptive' * finding.adaptive}"


def _tensors(recovered: Tensor | None, found: list[Finding], samples: int) -> dict[str, Tensor]:
    """inputs and claimed (T, N, ...), answers (T, A, N, ...) where there are several, labels (T, N) where any are."""
    kept: dict[str, Tensor] = {}
    if recovered is not None:
        first = recovered[:, :samples]
        kept |= {"inputs": first.nan_to_num(BLANK).contiguous(), "claimed": claimed(first).contiguous()}
        if recovered.shape[1] > samples:
            answers = recovered[:, samples:]
            kept["answers"] = answers.reshape(len(answers), -1, samples, *answers.shape[2:]).contiguous()
    if all(f.labels is not None for f in found):
        named = [[NO_LABEL if label is None else label for label in f.labels or ()] for f in found]
        kept["labels"] = torch.tensor(named)
    return kept
