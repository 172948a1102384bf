"""The pages of the study: a table, a plot, and the numbers behind both."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from leakgauge.checks.thresholds import Thresholds
from leakgauge.lab.detection.arms_race import LINKS, Point
from leakgauge.lab.detection.rates import CheckRow, Row
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.types import Interval

_MARKS = ("o", "s", "^", "D")
PAPERS = ("mostly-zeros", "oversized-dense", "dominated-gradients")


@dataclasses.dataclass(frozen=True)
class Study:
    """What was measured, and where."""

    rows: tuple[Row, ...]  # on the reporting half, at the thresholds of the choosing half
    usual: tuple[Row, ...]  # on the same half, at the thresholds that the tool comes with
    chosen: Thresholds
    models: int
    seed: int
    points: tuple[Point, ...]
    environment: Mapping[str, str]
    by_check: tuple[CheckRow, ...] = ()  # of all models, at the thresholds that the tool comes with


def write_study(study: Study, folder: Path) -> dict[str, Path]:
    """README.md, measured.json and, if the race was run, arms-race.svg."""
    make_folder(folder)
    files = {"measured": folder / "measured.json", "readme": folder / "README.md"}
    write_whole(files["measured"], (json.dumps(as_dict(study), indent=1) + "\n").encode())
    write_whole(files["readme"], markdown(study).encode())
    if study.points:
        files["plot"] = folder / "arms-race.svg"
        write_whole(files["plot"], plot(study.points))
    return files


def as_dict(study: Study) -> dict[str, object]:
    plain = dataclasses.asdict(study)
    plain["chosen"] = study.chosen.as_dict()
    return plain


def markdown(study: Study) -> str:
    where = study.environment
    lines = [
        "<!-- Written by `leakgauge lab detection`; run that instead of editing. -->",
        "",
        "# How often `leakgauge inspect` finds a tampering server",
        "",
        f"{study.models} models, seed {study.seed}, on {where['device']}, leakgauge {where['leakgauge']} (commit "
        f"{where['commit']}). The models of each family are split into two halves. The thresholds of the left columns "
        "were chosen on one half and the rates are those of the other; the right columns use the thresholds that the "
        "tool comes with, on the same half. Shares of models called tampered, with exact 95 % intervals: for clean "
        "models these are false alarms. *Weights* looks at the checkpoint alone, *with samples* also at the gradients "
        "of 16 samples of the client's own.",
        "",
        "| family | models | weights | with samples | weights, as shipped | with samples, as shipped |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row, usual in zip(study.rows, study.usual, strict=True):
        cells = [_share(i) for i in (row.weights, row.probed, usual.weights, usual.probed)]
        lines.append(f"| {row.family} | {row.models} | {' | '.join(cells)} |")
    lines += _check_table(study.by_check)
    if study.points:
        lines += [
            "",
            "## The arms race",
            "",
            "MKOR with inconspicuous parameters on VGG16 at 224 pixels, a batch of nine photographs, NLL on "
            "logits. Its convolutions edit the block of Eq. 20. The server hides by noise on its mirrored rows "
            "(half of the layer's deviation), by more and more noise on what it wrote and by weaker links. "
            "Detection is the clearest check's score over its threshold, from the weights alone: from 1 on the "
            "model is called tampered. The rows are hidden because mirrored rows without noise were found at "
            "every strength, so that nothing else showed.",
            "",
            "![detection against PSNR](arms-race.svg)",
            "",
            "| link | noise | detection | by | PSNR, dB | SSIM |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for (link, noise), group in _grouped(study.points).items():
            margin = min(p.margin for p in group)
            by = ", ".join(sorted({p.check for p in group}))
            psnr, ssim = (sum(getattr(p, name) for p in group) / len(group) for name in ("psnr", "ssim"))
            lines.append(f"| {link:g} | {noise:g} | {margin:.2f} | {by} | {psnr:.1f} | {ssim:.2f} |")
        lines += ["", "Detection is the least, PSNR and SSIM the means over the seeds."]
    return "\n".join(lines) + "\n"


def _check_table(rows: Sequence[CheckRow]) -> list[str]:
    """A row for each server, a column for each check: the three of the paper, then our checks that report a model."""
    if not rows:
        return []
    ours = [name for name in rows[0].shares if name not in PAPERS and any(row.shares[name].value for row in rows)]
    lines = [
        "",
        "## Which check sees which server",
        "",
        "Shares of all models in which a check reports something, with samples, at the thresholds that the tool comes "
        "with. The first three checks are those that Wang et al. 2023 name for a client, with exact 95 % intervals; "
        "they are cautions here. A dash is none.",
        "",
        f"| family | models | {' | '.join([*(f'*{name}*' for name in PAPERS), *ours])} |",
        "| --- | --- |" + " --- |" * (len(PAPERS) + len(ours)),
    ]
    for row in rows:
        cells = [_share(row.shares[n]) if n in PAPERS else _brief(row.shares[n]) for n in (*PAPERS, *ours)]
        lines.append(f"| {row.family} | {row.models} | {' | '.join(cells)} |")
    return lines


def _brief(interval: Interval) -> str:
    return f"{100 * interval.value:.0f} %" if interval.value else "–"


def plot(points: Sequence[Point]) -> bytes:
    """Detection against PSNR, one mark per model."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "leakgauge"  # the same picture gives the same file
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    for mark, link in zip(_MARKS, sorted({p.link for p in points}, reverse=True), strict=False):
        mine = [p for p in points if p.link == link]
        axes.plot([p.psnr for p in mine], [p.margin for p in mine], mark, label=f"link {link:g}", alpha=0.75)
        for p in mine:
            axes.annotate(f"{p.noise:g}", (p.psnr, p.margin), fontsize=6, xytext=(3, 3), textcoords="offset points")
    axes.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.axvline(20, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="PSNR of what the server recovers, dB", ylabel="detection (1: found)", yscale="log")
    axes.legend(title="labels: noise", fontsize=8)
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return written.getvalue()


def _grouped(points: Sequence[Point]) -> dict[tuple[float, float], list[Point]]:
    groups: dict[tuple[float, float], list[Point]] = {}
    for link in LINKS:
        for p in points:
            if p.link == link:
                groups.setdefault((p.link, p.noise), []).append(p)
    return groups


def _share(interval: Interval) -> str:
    if interval.value is None or interval.low is None or interval.high is None:
        return "–"
    return f"{100 * interval.value:.0f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"
