"""How near a reconstruction comes to the pictures, in the same way for everybody; and the table of all results.

python benchmarks/peers/scores.py RESULTS.jsonl     writes the table of benchmarks/peers.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from victims import Victims

from leakgauge.metrics.psnr import PSNR
from leakgauge.metrics.scoring import score
from leakgauge.metrics.ssim import SSIM
from leakgauge.types import Batch, Reconstruction

BATCHES = (1, 4, 8)
PUBLIC = ("original", "breaching-invertinggradients", "breaching-modern")


def scores(seen: Victims, recovered: Tensor | None) -> dict[str, Any]:
    """Clamped and matched to the true pictures: means, and the mean of each victim."""
    assert recovered is not None
    zero = recovered.new_zeros(len(recovered))
    found = score(
        Batch(seen.inputs, seen.labels), Reconstruction(recovered, None, zero, zero, zero), seen.data, (PSNR, SSIM)
    ).records
    psnr, ssim = found["psnr"], found["ssim"]
    return {
        "psnr_mean": round(float(psnr.mean()), 3),
        "ssim_mean": round(float(ssim.mean()), 4),
        "over_the_bar": int((ssim >= 0.6).sum()),
        "psnr": [round(float(v), 2) for v in psnr.mean(1)],
    }


def main() -> None:
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines() if line.strip()]
    by = {(r["network"], r["batch"], r["who"]): r for r in rows}
    ours = list(dict.fromkeys(r["who"] for r in rows if r["who"] not in PUBLIC))
    lines = [f"| network | batch | {' | '.join((*PUBLIC, *ours))} | {ours[0]} less the best of the three [95 %] |"]
    lines.append("|---" * (3 + len(PUBLIC) + len(ours)) + "|")
    for network in dict.fromkeys(r["network"] for r in rows):
        for batch in BATCHES:
            if (network, batch, PUBLIC[0]) in by:
                lines.append(_row(network, batch, by, ours))
    sys.stdout.write("\n".join(lines) + "\n")


def _row(network: str, batch: int, by: dict[tuple[str, int, str], dict[str, Any]], ours: list[str]) -> str:
    told = [by.get((network, batch, who)) for who in (*PUBLIC, *ours)]
    best = max((r for r in told[: len(PUBLIC)] if r), key=lambda r: r["psnr_mean"])
    cells = ["-" if r is None else f"{r['psnr_mean']:.1f} ({r['over_the_bar']})" for r in told]
    mine = by.get((network, batch, ours[0]))
    gap = "-" if mine is None else _paired(np.array(mine["psnr"]) - np.array(best["psnr"]))
    return f"| {network} | {batch} | {' | '.join(cells)} | {gap} |"


def _paired(gaps: Any) -> str:
    """Mean and percentile bootstrap over victims."""
    draws = np.random.default_rng(0).choice(gaps, (10000, len(gaps))).mean(1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{gaps.mean():+.1f} [{low:+.1f}, {high:+.1f}]"


if __name__ == "__main__":
    main()
