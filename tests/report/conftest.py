"""A made-up audit: two configurations, two attacks, three trials of two samples, and the baselines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from leakgauge.types import (
    AuditReport,
    Clue,
    ConfigurationVerdict,
    DataSpec,
    Finding,
    Flag,
    Guarantee,
    Interval,
    Pictures,
    Rate,
    Scenario,
    Skipped,
    Summary,
    Verdict,
    cell_name,
)
from leakgauge.verdict.flags import FLAGS, NO_TRUTH
from leakgauge.verdict.summary import summarise, unscored_verdict

TRIALS, SAMPLES = 3, 2
NOISE = {  # cell -> how far its pictures are from the truth
    ("dlg", "none", False): 0.05,
    ("inverting-gradients", "none", False): 0.02,
    ("dlg", "gaussian:std=0.1", False): 0.8,
    ("inverting-gradients", "gaussian:std=0.1", True): 0.5,
    ("random-guess", "none", False): 1.0,
    ("mean-image", "none", False): 0.6,
}
FAILED = ("dlg", "gaussian:std=0.1", False, 1)


@dataclass(frozen=True)
class Made:
    report: AuditReport
    pictures: Pictures


@pytest.fixture
def made() -> Made:
    return make_audit()


@pytest.fixture
def blind() -> Callable[..., Made]:
    return make_blind


def make_blind(*findings: Finding, clients: tuple[str, ...] = ("a", "b"), size: int = 2, side: int = 4) -> Made:
    """An audit of two clients' updates whose samples nobody has; what is drawn is noise, as `dlg` would make it."""
    verdict = unscored_verdict(findings, len(clients), size)
    drawn = torch.rand(len(clients), size, 1, side, side, generator=torch.Generator().manual_seed(7))
    report = AuditReport(
        scenario=Scenario("mlp", "digits", size, update="recorded", trials=len(clients), blind=True),
        data=DataSpec("digits", (1, side, side), 10, "image"),
        findings=findings,
        summary=summarise(findings, DataSpec("digits", (1, side, side), 10, "image")),
        verdict=verdict,
        flags=(FLAGS[NO_TRUTH],),
        facts=("input-spec",),
        environment={"device": "cpu", "leakgauge": "0.1.0"},
        triage=(Clue("norm", "norm", "2", "no sign of clipping", "exposed"),),
        skipped=(Skipped("dlg", "none", False, "<settled>"),),
        clients=clients,
    )
    pictures = {cell_name(f.attack, f.defense, f.adaptive): drawn for f in findings}
    return Made(report, Pictures(drawn[:, :0], pictures))


@pytest.fixture
def labels_only(made: Made) -> AuditReport:
    """An audit whose first attack claims labels and no records."""
    first, *others = made.report.summary
    row = dataclasses.replace(
        first,
        attack="labels",
        success_rate=Rate(0.0, 0.0, 1.0, 0, 0, "ssim>=0.6"),
        worst={},
        metrics={"label_accuracy_mean_per_trial": Interval(0.96875, 0.9, 1.0)},
        floor={"mean-image": {"label_accuracy_mean_per_trial": Interval(0.25, 0.2, 0.3)}},
    )
    findings = tuple(
        dataclasses.replace(f, attack="labels", records=(), scores={"label_accuracy": 0.96875})
        if _cell(f) == (first.attack, first.defense, first.adaptive)
        else f
        for f in made.report.findings
    )
    return dataclasses.replace(made.report, summary=(row, *others), findings=findings)


@pytest.fixture
def with_control(made: Made) -> Made:
    """The same audit with one more row: `dlg` on a decoy, which passes as recovered and raises a flag of its own."""
    report, cell = made.report, ("dlg", "none", False)
    row = next(r for r in report.summary if (r.attack, r.defense, r.adaptive) == cell)
    name, mark = "dlg on a decoy", Flag("no-better-than-control", "No closer than to others.", "Read it as nothing.")
    control = dataclasses.replace(
        row, attack=name, flags=(mark.id,), success_rate=Rate(1.0, 0.6, 1.0, 6, 6, "ssim>=0.6")
    )
    findings = tuple(dataclasses.replace(f, attack=name, is_decoy=True) for f in report.findings if _cell(f) == cell)
    pictures = made.pictures.recovered | {cell_name(name, *cell[1:]): made.pictures.recovered[cell_name(*cell)]}
    changed = dataclasses.replace(
        report, summary=(*report.summary, control), findings=report.findings + findings, flags=(*report.flags, mark)
    )
    return Made(changed, Pictures(made.pictures.true, pictures))


@pytest.fixture
def make() -> Callable[..., Made]:
    return make_audit


def make_audit(kind: str = "image", shape: tuple[int, ...] = (3, 8, 8), model: str = "lenet-dlg") -> Made:
    generator = torch.Generator().manual_seed(7)
    true = torch.rand(TRIALS, SAMPLES, *shape, generator=generator)
    recovered, findings = {}, []
    for attack, defense, adaptive in NOISE:
        noise = NOISE[attack, defense, adaptive] * torch.arange(1, TRIALS + 1).view(-1, *[1] * (true.ndim - 1))
        picture = (true + noise * (torch.rand(true.shape, generator=generator) - 0.5)).clamp(0, 1)
        recovered[cell_name(attack, defense, adaptive)] = picture
        for trial in range(TRIALS):
            findings.append(_finding(kind, attack, defense, adaptive, trial, true, picture))
    rows = tuple(_summary(kind, cell, [f for f in findings if _cell(f) == cell]) for cell in NOISE)
    report = AuditReport(
        scenario=Scenario(
            model=model,
            data="photos32",
            batch_size=SAMPLES,
            defenses=("gaussian:std=0.1",),
            attacks=("dlg", "inverting-gradients"),
            trials=TRIALS,
        ),
        data=DataSpec("photos32", shape, 10, kind),
        findings=tuple(findings),
        summary=rows,
        verdict=_verdict(rows),
        flags=(Flag("noise-unaccounted", "Noise without an accountant.", "Use dp-sgd."),),
        facts=("input-spec", "num-samples", "local-training", "public-data"),
        environment={"leakgauge": "0.1.0", "torch": "2.13.0", "device": "cpu", "commit": "f7e39c1"},
    )
    return Made(report, Pictures(true, recovered))


def _cell(f: Finding) -> tuple[str, str, bool]:
    return f.attack, f.defense, f.adaptive


def _finding(
    kind: str, attack: str, defense: str, adaptive: bool, trial: int, true: torch.Tensor, picture: torch.Tensor
) -> Finding:
    if (attack, defense, adaptive, trial) == FAILED:
        return Finding(attack, defense, adaptive, trial, trial, {}, error="the loss became NaN", steps=12)
    records = []
    for i in range(SAMPLES):
        mse = (true[trial, i] - picture[trial, i]).square().mean().item()
        ssim = max(-1.0, 1 - 20 * mse) if kind == "image" else None
        records.append({"mse": mse, "psnr": -10 * math.log10(mse), "ssim": ssim})
    scores = {k: None if records[0][k] is None else sum(r[k] for r in records) / SAMPLES for k in records[0]}
    return Finding(
        attack,
        defense,
        adaptive,
        trial,
        trial,
        scores | {"label_accuracy": 1.0},
        tuple(records),
        objective=0.1,
        steps=300,
        evaluations=300,
        seconds=1.25,
        flags=("noise-unaccounted",) if "gaussian" in defense else (),
        spec=attack,
        trace=() if attack in ("random-guess", "mean-image") else (8.0, 2.0, 0.5, 0.1),
    )


def _summary(kind: str, cell: tuple[str, str, bool], findings: list[Finding]) -> Summary:
    records = [(f.trial, i, r) for f in findings for i, r in enumerate(f.records)]
    metric, higher = ("ssim", True) if kind == "image" else ("mse", False)
    hits = sum(r[metric] >= 0.6 if higher else r[metric] <= 1e-3 for _, _, r in records)
    total = TRIALS * SAMPLES
    trial, index, best = max(records, key=lambda r: r[2][metric] if higher else -r[2][metric])
    names = ("psnr", "ssim", "mse") if kind == "image" else ("mse",)
    metrics = {f"{n}_mean_per_image": _interval([r[n] for _, _, r in records]) for n in names}
    floor = {f"{metric}_mean_per_image": Interval(0.1, 0.05, 0.15), "psnr_mean_per_image": Interval(9, 8, 10)}
    return Summary(
        *cell,
        trials=TRIALS,
        failed=sum(f.error is not None for f in findings),
        metrics=metrics | {"label_accuracy_mean_per_trial": Interval(1.0, 0.9, 1.0)},
        success_rate=Rate(
            hits / total,
            max(0.0, hits / total - 0.3),
            min(1.0, hits / total + 0.3),
            hits,
            total,
            "ssim>=0.6" if higher else "mse<=0.001",
        ),
        worst={"trial": trial, "record": index} | best,
        floor={"random-guess": floor, "mean-image": floor},
        flags=("noise-unaccounted",) if "gaussian" in cell[1] else (),
        seconds=3.75,
        steps_median=Interval(300.0, 300.0, 300.0),
        evaluations_median=Interval(6000.0, 5990.0, 6010.5),
    )


def _interval(values: list[float]) -> Interval:
    mean = sum(values) / len(values)
    return Interval(mean, min(values), max(values))


def _verdict(rows: tuple[Summary, ...]) -> Verdict:
    def configuration(defense: str, attack: str, adaptive: bool, leaks: bool) -> ConfigurationVerdict:
        row = next(r for r in rows if (r.attack, r.defense, r.adaptive) == (attack, defense, adaptive))
        rate = row.success_rate
        return ConfigurationVerdict(
            defense,
            leaks,
            f"{attack} recovered {rate.recovered} of {rate.records} records.",
            attack=attack,
            adaptive=adaptive,
            rate=rate,
            guarantee=None if leaks else Guarantee(8.0, 1e-5, "sample"),
        )

    return Verdict(
        leaks=True,
        sentence="1 of 2 configurations gives private records away: without a defense, inverting-gradients "
        "recovers most of them.",
        configurations=(
            configuration("none", "inverting-gradients", False, True),
            configuration("gaussian:std=0.1", "inverting-gradients", True, False),
        ),
    )
