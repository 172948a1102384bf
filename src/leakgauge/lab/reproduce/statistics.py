"""From the findings of all victims of a cell to one number with its 95 % interval, in the papers' conventions.

A statistic is written as in a recipe: `asr`, or with an argument `asr_within(30)`. Success is that of the CPL
paper: the objective of the attack ended below its absolute threshold or, without one, below its relative threshold
after at least one step. A failed trial counts as a failure. Only `iterations` and statistics with `of_successes` in
their name are taken over successes alone, as in the paper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from leakgauge import catalog
from leakgauge.defenses.sensitivity import Sensitivity
from leakgauge.errors import BadInput
from leakgauge.lab.reproduce.figures import FIGURES
from leakgauge.metrics.criterion import CRITERIA, Criterion, Scored, beats
from leakgauge.metrics.intervals import bootstrap_mean, clopper_pearson
from leakgauge.metrics.psnr import psnr_as_fedkl
from leakgauge.settings import unknown_name
from leakgauge.setup.plan import parse_chain
from leakgauge.types import Finding, Interval

_SPEC = re.compile(r"([a-z_]+)(?:\(([0-9.e+-]+)\))?")
_NOTHING = Interval(None, None, None)
_RESAMPLES = 2000
_EXACT = Criterion("mse", 1e-6)  # of values in [0, 1]
Findings = Sequence[Finding]


@dataclass(frozen=True)
class Statistic:
    """`heading` for people, with the argument at `{}`; `form` prints a value."""

    heading: str
    form: str
    compute: Callable[[Findings, float], Interval]
    takes_argument: bool = False


def compute(spec: str, findings: Findings) -> Interval:
    """The value of a statistic over all victims, with its interval where there is one."""
    statistic, argument = parse(spec)
    return statistic.compute(findings, argument)


def heading(spec: str) -> str:
    if spec in FIGURES:
        return FIGURES[spec].heading
    statistic, argument = parse(spec)
    return statistic.heading.format(f"{argument:g}")


def written(spec: str, value: float | None) -> str:
    form = FIGURES[spec].form if spec in FIGURES else parse(spec)[0].form
    return "–" if value is None else form.format(value)


def parse(spec: str) -> tuple[Statistic, float]:
    found = _SPEC.fullmatch(spec)
    if not found or found[1] not in STATISTICS:
        raise unknown_name("statistic", found[1] if found else spec, STATISTICS)
    statistic = STATISTICS[found[1]]
    if statistic.takes_argument != (found[2] is not None):
        allowed = "given an argument in brackets" if statistic.takes_argument else "written without an argument"
        raise BadInput(f"statistic {spec!r}", allowed=allowed, got=repr(spec), do="see lab/reproduce/statistics.py")
    return statistic, float(found[2] or 0)


def is_failed(finding: Finding) -> bool:
    """True if the trial raised or diverged."""
    return finding.error is not None or "diverged" in finding.flags


def succeeded(finding: Finding) -> bool:
    """True if the objective of the attack ended below its threshold. Without a threshold there is no success.

    A start below an absolute threshold is a success; a relative threshold requires at least one step.
    """
    threshold = _absolute_threshold(finding.spec)
    if threshold is None:
        return finding.solved is True
    return finding.objective is not None and finding.objective < threshold


@cache
def _absolute_threshold(spec: str) -> float | None:
    """As papers state it. The threshold of a cosine distance is absolute by itself."""
    attack = catalog.build("attacks", spec)
    if getattr(attack, "distance", None) == "cosine":
        return getattr(attack, "threshold", None)
    return getattr(attack, "absolute_threshold", None)


def recognised(record: Scored) -> bool:
    """The criterion of an audit: SSIM of a picture, MSE of a table's row, which has no SSIM."""
    picture = CRITERIA["image"]
    return (picture if picture.metric in record else CRITERIA["tabular"]).met(record)


def _asr(findings: Findings, _: float) -> Interval:
    return _share([succeeded(f) for f in findings])


def _asr_within(findings: Findings, steps: float) -> Interval:
    return _share([succeeded(f) and f.steps <= steps for f in findings])


def _recognised(findings: Findings, _: float) -> Interval:
    """The share of records, not of trials; a trial without scores counts as one record that is not recognised."""
    return _share([recognised(dict(r)) for f in findings for r in (f.records or ({},))])


def _iterations(findings: Findings, _: float) -> Interval:
    return bootstrap_mean(torch.tensor([float(f.steps) for f in findings if succeeded(f)]))


def _of_steps(reduce: Callable[..., Any]) -> Callable[[Findings, float], Interval]:
    """A reduction of the successes' steps; extremes and deviations of a few steps have no honest interval."""

    def compute(findings: Findings, _: float) -> Interval:
        steps = np.array([f.steps for f in findings if succeeded(f)], dtype=float)
        return Interval(float(reduce(steps)), None, None) if len(steps) else _NOTHING

    return compute


def _steps_mean(findings: Findings, _: float) -> Interval:
    """For attacks without a threshold, which use all their steps on every victim."""
    return bootstrap_mean(torch.tensor([float(f.steps) for f in findings]))


def _steps_median(findings: Findings, _: float) -> Interval:
    """Over all victims, failures with the steps that they used: the median has a meaning while half succeed."""
    return _bootstrap([float(f.steps) for f in findings], np.median)


def _mean(metric: str, successes: bool = False) -> Callable[[Findings, float], Interval]:
    """The mean over records of a score, whole trials resampled."""

    def compute(findings: Findings, _: float) -> Interval:
        kept = [f for f in findings if f.records and (succeeded(f) or not successes)]
        rows = [[r[metric] for r in f.records] for f in kept if metric in f.records[0]]
        return bootstrap_mean(torch.tensor(rows, dtype=torch.double)) if rows else _NOTHING

    return compute


def _best(metric: str) -> Callable[[Findings, float], Interval]:
    """The mean over trials of the trial's best record."""

    def compute(findings: Findings, _: float) -> Interval:
        best = [max(float(r[metric] or 0.0) for r in f.records) for f in findings if f.records]
        return bootstrap_mean(torch.tensor(best, dtype=torch.double)) if best else _NOTHING

    return compute


def _exact_records(findings: Findings, _: float) -> Interval:
    """How many records of a trial came back to the last digit that matters."""
    counts = [sum(_EXACT.met(r) for r in f.records) for f in findings if f.records]
    return bootstrap_mean(torch.tensor(counts, dtype=torch.double)) if counts else _NOTHING


def _psnr_median(findings: Findings, _: float) -> Interval:
    """Over records; one without a score counts as 0 dB."""
    return _bootstrap(_psnrs(findings), np.median)


def _over(metric: str) -> Callable[[Findings, float], Interval]:
    """The share of all records that score better than a limit; one without a score does not."""

    def compute(findings: Findings, limit: float) -> Interval:
        return _share([beats(metric, r, {metric: limit}) for f in findings for r in (f.records or ({},))])

    return compute


def _psnrs(findings: Findings) -> list[float]:
    return [float(r.get("psnr") or 0.0) for f in findings for r in (f.records or ({},))]


def _largest(metric: str) -> Callable[[Findings, float], Interval]:
    """The record that is recovered best, of all victims; an extreme has no honest interval."""

    def compute(findings: Findings, _: float) -> Interval:
        values = _values(metric, findings)
        return Interval(max(values), None, None) if values else _NOTHING

    return compute


def _quantile(metric: str) -> Callable[[Findings, float], Interval]:
    """Over records, in percent: 0 is the least recovered one, 100 the best."""

    def compute(findings: Findings, percent: float) -> Interval:
        values = _values(metric, findings)
        if not values:
            return _NOTHING
        if percent in (0, 100):
            return Interval(float(np.percentile(values, percent)), None, None)
        return _bootstrap(values, partial(np.percentile, q=percent))

    return compute


def _values(metric: str, findings: Findings) -> list[float]:
    """Of all records that have such a score; one without a score, because its trial failed, counts as 0."""
    if not any(metric in r for f in findings for r in f.records):
        return []
    return [float(r.get(metric) or 0.0) for f in findings for r in (f.records or ({},))]


def _mse_worst(findings: Findings, _: float) -> Interval:
    """The largest of all records; an extreme has no honest interval. Nothing if a trial has no scores."""
    values = [r.get("mse") for f in findings for r in (f.records or ({},))]
    known = [v for v in values if v is not None]
    return Interval(max(known), None, None) if known and len(known) == len(values) else _NOTHING


def _mse_smallest(findings: Findings, _: float) -> Interval:
    """The record of a table that is recovered best, of all victims."""
    known = [v for f in findings for r in f.records if (v := r.get("mse")) is not None]
    return Interval(min(known), None, None) if known else _NOTHING


def _std(metric: str) -> Callable[[Findings, float], Interval]:
    """Standard deviation over records."""

    def compute(findings: Findings, _: float) -> Interval:
        values = [float(r[metric] or 0.0) for f in findings for r in f.records if metric in r]
        return _bootstrap(values, partial(np.std, ddof=1)) if len(values) > 1 else _NOTHING

    return compute


def _psnr_thesis(findings: Findings, _: float) -> Interval:
    """The conversion is linear, so it is applied to the interval as to the mean."""
    true = _mean("psnr")(findings, 0)
    return Interval(*(None if v is None else psnr_as_fedkl(v) for v in (true.value, true.low, true.high)))


def _rmse_thesis(findings: Findings, _: float) -> Interval:
    """What FedKL's tables call MSE: the root mean square error of pixels from 0 to 255, mean over pictures."""
    rows = [[255 * float(r["mse"]) ** 0.5 for r in f.records if r["mse"] is not None] for f in findings if f.records]
    return bootstrap_mean(torch.tensor(rows, dtype=torch.double)) if rows else _NOTHING


def _slices_named(findings: Findings, _: float) -> Interval:
    """The share of the noised slices of `sensitivity` that the note of the attack names."""
    hits: list[bool] = []
    for finding in findings:
        named = finding.note.partition(":")[2].split()
        for defense in parse_chain(finding.defense):
            if isinstance(defense, Sensitivity):
                hits += [str(number) in named for number in defense.chosen([finding.seed])[0].tolist()]
    return _share(hits)


def _label_accuracy(findings: Findings, _: float) -> Interval:
    """One sample per trial gives a share of trials; a batch the mean of its trials' shares."""
    values = [f.scores.get("label_accuracy") or 0.0 for f in findings]
    return _share([v == 1 for v in values]) if set(values) <= {0.0, 1.0} else bootstrap_mean(torch.tensor(values))


def _label_accuracy_std(findings: Findings, _: float) -> Interval:
    """Over trials, as of a whole population, which is how GRNN's thesis computes it."""
    values = [f.scores.get("label_accuracy") or 0.0 for f in findings]
    return _bootstrap(values, np.std) if len(values) > 1 else _NOTHING


def _objective(findings: Findings, _: float) -> Interval:
    """The lowest value that the attack reached; no figure if a trial has none."""
    values = [f.objective for f in findings]
    known = [v for v in values if v is not None]
    return bootstrap_mean(torch.tensor(known, dtype=torch.double)) if known and len(known) == len(values) else _NOTHING


def _share(hits: Sequence[bool]) -> Interval:
    if not hits:
        return _NOTHING
    low, high = clopper_pearson(sum(hits), len(hits))
    return Interval(sum(hits) / len(hits), low, high)


def _bootstrap(values: Sequence[float], reduce: Callable[..., Any]) -> Interval:
    table = np.array(values, dtype=float)
    if len(table) < 2:
        return Interval(float(reduce(table)), None, None) if len(table) else _NOTHING
    picks = np.random.default_rng(0).integers(len(table), size=(_RESAMPLES, len(table)))
    low, high = np.percentile(reduce(table[picks], axis=1), [2.5, 97.5])
    return Interval(float(reduce(table)), float(low), float(high))


STATISTICS = {
    "asr": Statistic("ASR", "{:.3f}", _asr),
    "asr_within": Statistic("ASR within {} steps", "{:.3f}", _asr_within, takes_argument=True),
    "recognised": Statistic("recognised", "{:.3f}", _recognised),
    "iterations": Statistic("iterations", "{:.1f}", _iterations),
    "iterations_min": Statistic("fewest", "{:.0f}", _of_steps(np.min)),
    "iterations_max": Statistic("most", "{:.0f}", _of_steps(np.max)),
    "iterations_std": Statistic("std", "{:.1f}", _of_steps(np.std)),
    "iterations_var": Statistic("variance", "{:.1f}", _of_steps(np.var)),
    "steps_mean": Statistic("mean steps, all victims", "{:.1f}", _steps_mean),
    "steps_median": Statistic("median steps, all victims", "{:.1f}", _steps_median),
    "ssim": Statistic("SSIM", "{:.3f}", _mean("ssim")),
    "ssim_of_successes": Statistic("SSIM of successes", "{:.4f}", _mean("ssim", successes=True)),
    "mse": Statistic("MSE", "{:.2e}", _mean("mse")),
    "mse_of_successes": Statistic("MSE of successes", "{:.2e}", _mean("mse", successes=True)),
    "psnr": Statistic("PSNR, dB", "{:.2f}", _mean("psnr")),
    "psnr_trained_on": Statistic("PSNR against the transformed picture, dB", "{:.2f}", _mean("psnr_trained_on")),
    "ssim_trained_on": Statistic("SSIM against the transformed picture", "{:.3f}", _mean("ssim_trained_on")),
    "psnr_undone": Statistic("PSNR after undoing what was drawn, dB", "{:.2f}", _mean("psnr_undone")),
    "ssim_undone": Statistic("SSIM after undoing what was drawn", "{:.3f}", _mean("ssim_undone")),
    "psnr_largest": Statistic("most exposed picture, PSNR, dB", "{:.2f}", _largest("psnr")),
    "ssim_largest": Statistic("most exposed picture, SSIM", "{:.3f}", _largest("ssim")),
    "psnr_quantile": Statistic("PSNR at {} %, dB", "{:.2f}", _quantile("psnr"), takes_argument=True),
    "psnr_trained_on_quantile": Statistic(
        "PSNR against the transformed picture at {} %, dB", "{:.2f}", _quantile("psnr_trained_on"), takes_argument=True
    ),
    "psnr_undone_quantile": Statistic(
        "PSNR after undoing what was drawn at {} %, dB", "{:.2f}", _quantile("psnr_undone"), takes_argument=True
    ),
    "psnr_aligned": Statistic("aligned PSNR, dB", "{:.2f}", _mean("psnr_aligned")),
    "ssim_aligned": Statistic("aligned SSIM", "{:.3f}", _mean("ssim_aligned")),
    "psnr_aligned_above": Statistic("share over {} dB aligned", "{:.2f}", _over("psnr_aligned"), takes_argument=True),
    "psnr_median": Statistic("median PSNR, dB", "{:.2f}", _psnr_median),
    "psnr_above": Statistic("share over {} dB", "{:.2f}", _over("psnr"), takes_argument=True),
    "mse_worst": Statistic("largest MSE", "{:.1e}", _mse_worst),
    "mse_smallest": Statistic("most exposed record, MSE", "{:.1e}", _mse_smallest),
    "ssim_above": Statistic("share over an SSIM of {}", "{:.2f}", _over("ssim"), takes_argument=True),
    "objective": Statistic("lowest objective", "{:.1e}", _objective),
    "ssim_best": Statistic("best SSIM", "{:.3f}", _best("ssim")),
    "psnr_best": Statistic("best PSNR, dB", "{:.2f}", _best("psnr")),
    "exact_records": Statistic("exact records in a batch", "{:.2f}", _exact_records),
    "psnr_std": Statistic("std over images, dB", "{:.2f}", _std("psnr")),
    "psnr_trained_on_std": Statistic("std over images, against the transformed, dB", "{:.2f}", _std("psnr_trained_on")),
    "psnr_thesis": Statistic("PSNR as the thesis computes it, dB", "{:.2f}", _psnr_thesis),
    "rmse_thesis": Statistic("MSE as the thesis computes it (RMSE of 0 to 255)", "{:.2f}", _rmse_thesis),
    "lpips": Statistic("LPIPS, AlexNet", "{:.3f}", _mean("lpips")),
    "lpips_vgg": Statistic("LPIPS, VGG16", "{:.3f}", _mean("lpips-vgg")),
    "slices_named": Statistic("noised slices named", "{:.3f}", _slices_named),
    "label_accuracy": Statistic("label accuracy", "{:.3f}", _label_accuracy),
    "label_accuracy_std": Statistic("its standard deviation", "{:.3f}", _label_accuracy_std),
}
