"""From findings to the table's rows, and from the rows to what the audit concludes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.metrics.intervals import bootstrap_mean, rate
from leakgauge.settings import unknown_name
from leakgauge.types import CRITERION, UNDEFENDED, DataSpec, Finding, Guarantee, Interval, Summary, Verdict

_REDUCED = {"label_accuracy": "label_accuracy_mean_per_trial"}


@dataclasses.dataclass(frozen=True)
class Gate:
    """A limit that the audited configuration must keep: `ssim=0.5` fails if any record reaches it."""

    metric: str
    threshold: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        name, _, value = text.partition("=")
        known = {n for n in catalog.find("metrics") if n in ("mse", "psnr", "ssim")}
        if name not in known:
            raise unknown_name("gate metric", name, known)
        try:
            threshold = float(value)
        except ValueError:
            threshold = math.nan
        if not math.isfinite(threshold):  # nothing ever reaches nan: such a gate would always hold
            raise BadInput("gate", allowed="METRIC=NUMBER", got=repr(text), do="for example --gate ssim=0.5")
        return cls(name, threshold)

    def exceeded_by(self, score: float | None) -> bool:
        if score is None:
            return False
        return (
            score >= self.threshold if catalog.get("metrics", self.metric).higher_is_better else score <= self.threshold
        )


def criterion(data: DataSpec) -> str:
    """When a record counts as recovered: `ssim>=0.6` for images, `mse<=0.001` for tables."""
    metric, limit = CRITERION[data.kind]
    sign = ">=" if catalog.get("metrics", metric).higher_is_better else "<="
    return f"{metric}{sign}{limit:g}"


def is_recovered(data: DataSpec, record: Mapping[str, float | None], floor: Mapping[str, float | None]) -> bool:
    """Meets the criterion and beats the mean image on the same record: a flat picture alone recovers nothing."""
    name, limit = CRITERION[data.kind]
    score, guess = record.get(name), floor.get(name)
    if score is None:
        return False
    higher = catalog.get("metrics", name).higher_is_better
    met = score >= limit if higher else score <= limit
    return met and (guess is None or (score > guess if higher else score < guess))


def summarise(findings: Sequence[Finding], data: DataSpec) -> tuple[Summary, ...]:
    """One row per (attack, defence, plain or adaptive), in the order they were run; failures stay in."""
    groups: dict[tuple[str, str, bool], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.attack, finding.defense, finding.adaptive), []).append(finding)
    floors = {attack: _means(group) for (attack, _, _), group in groups.items() if attack in _baselines()}
    guesses = {f.trial: f.records for f in findings if f.attack == "mean-image"}
    return tuple(_row(key, group, data, floors, guesses) for key, group in groups.items())


def conclude(
    rows: Sequence[Summary],
    findings: Sequence[Finding],
    configurations: Sequence[str],
    guarantees: Mapping[str, Guarantee | None],
    gate: Gate | None,
) -> Verdict:
    """The verdict: the worst attack decides for each configuration; the ones under test decide for the whole."""
    controls = {f.attack for f in findings if f.control}  # whatever they score is no leak
    judged = [r for r in rows if r.attack not in _baselines() | controls and r.error is None]
    size = max((len(f.records) for f in findings), default=0)
    entries = [
        _configuration(c, [r for r in judged if r.defense == c], guarantees.get(c), size) for c in configurations
    ]
    tested = [e for e in entries if e["defense"] != UNDEFENDED] or entries
    leaking = [e for e in tested if e["leaks"]]
    sentence = " ".join(e["sentence"] for e in tested) or "Nothing was measured."
    return Verdict(
        bool(leaking), sentence, tuple(entries), _gate_result(gate, findings, [e["defense"] for e in tested])
    )


def _row(
    key: tuple[str, str, bool],
    group: Sequence[Finding],
    data: DataSpec,
    floors: Mapping[str, Mapping[str, Interval]],
    guesses: Mapping[int, Sequence[Mapping[str, float | None]]],
) -> Summary:
    attack, defense, adaptive = key
    scored = [(f, i, r) for f in group for i, r in enumerate(f.records)]
    size = max((len(f.records) for f in group), default=0)
    lost = sum(size for f in group if f.error is not None)  # attacked and not recovered
    floor_of = {(t, i): r for t, records in guesses.items() for i, r in enumerate(records)}
    recovered = sum(
        is_recovered(data, r, {} if attack in _baselines() else floor_of.get((f.trial, i), {})) for f, i, r in scored
    )
    return Summary(
        attack=attack,
        defense=defense,
        adaptive=adaptive,
        trials=len(group),
        failed=sum(f.error is not None or "diverged" in f.flags for f in group),
        metrics=_means(group),
        success_rate=rate(recovered, len(scored) + lost, criterion(data)),
        worst=_most_exposed(data, scored),
        floor={} if attack in _baselines() else dict(floors),
        flags=tuple(sorted({flag for f in group for flag in f.flags})),
        seconds=sum(f.seconds for f in group),
        error=group[0].error if all(f.error for f in group) else None,
        steps_median=_median([f.steps for f in group if f.error is None]),
        evaluations_median=_median([f.evaluations for f in group if f.error is None]),
    )


def _median(counts: Sequence[int]) -> Interval:
    """The median with its quartiles: a few trials that ran on for long do not move it, as they would a mean."""
    if not counts:
        return Interval(None, None, None)
    low, middle, high = torch.tensor(counts).double().quantile(torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    return Interval(middle, low, high)


def _means(group: Sequence[Finding]) -> dict[str, Interval]:
    names = {name for f in group for name in f.scores}
    means = {}
    for name in sorted(names):
        values = [v for f in group if (v := f.scores.get(name)) is not None]
        means[_REDUCED.get(name, f"{name}_mean_per_image")] = bootstrap_mean(torch.tensor(values))
    return means


def _most_exposed(
    data: DataSpec, scored: Sequence[tuple[Finding, int, Mapping[str, float | None]]]
) -> dict[str, float | None]:
    """The record that was recovered best, which is the worst for its owner."""
    name = CRITERION[data.kind][0]
    sign = 1.0 if catalog.get("metrics", name).higher_is_better else -1.0
    rated: list[tuple[float, Finding, int, Mapping[str, float | None]]] = [
        (sign * value, f, i, r) for f, i, r in scored if (value := r.get(name)) is not None
    ]
    if not rated:
        return {}
    _, finding, index, record = max(rated, key=lambda row: row[0])
    return {"trial": finding.trial, "record": index, **record}


def _configuration(defense: str, rows: Sequence[Summary], guarantee: Guarantee | None, size: int) -> dict[str, Any]:
    """What the attacks that ran on a configuration add up to; `size` records stand behind each trial."""
    attacked = [r for r in rows if r.success_rate.records]
    labels = _labels_read(rows, size)
    where = "Without defence" if defense == UNDEFENDED else f"With {defense}"
    promise = dataclasses.asdict(guarantee) if guarantee else None
    if not attacked:
        nothing = (
            "no attack of this run claims records." if rows else "nothing could be scored: no attack of this run fits."
        )
        return {
            "defense": defense, "leaks": False, "attack": None, "adaptive": False, "rate": None, "guarantee": promise,
            "labels": labels, "sentence": f"{where}, {nothing}{_said(labels)}",
        }  # fmt: skip
    worst = max(attacked, key=_severity)
    found = worst.success_rate
    name = f"{worst.attack}{' (knowing the defence)' if worst.adaptive else ''}"
    if found.recovered:
        share = (
            f"at least {found.low:.0%} at 95 %"
            if found.recovered == found.records
            else f"95 %: {found.low:.0%} to {found.high:.0%}"
        )
        sentence = (
            f"{where}, {name} recovers {found.recovered} of {found.records} records ({found.criterion}; {share})."
        )
    else:
        share = f"{found.criterion}; at most {found.high:.0%} at 95 %"
        sentence = f"{where}, no attack recovered any of {found.records} records ({share})."
    sentence += _said(labels)
    return {
        "defense": defense, "leaks": found.recovered > 0, "attack": worst.attack, "adaptive": worst.adaptive,
        "rate": dataclasses.asdict(found), "guarantee": promise, "labels": labels, "sentence": sentence,
    }  # fmt: skip


def headline(verdict: Verdict) -> str:
    """The verdict in a few words."""
    tested = [c for c in verdict.configurations if c["defense"] != UNDEFENDED] or list(verdict.configurations)
    states = {state_of(c) for c in tested}
    if verdict.leaks:
        return "Leaks"
    return "No record recovered, but labels read" if "labels read" in states else "No leak found"


def state_of(configuration: Mapping[str, Any]) -> str:
    """One configuration's verdict. Labels that were read are no recovered record, but no clean bill either."""
    if configuration["leaks"]:
        return "leaks"
    return "labels read" if configuration.get("labels") else "no leak found"


def _labels_read(rows: Sequence[Summary], size: int) -> dict[str, Any] | None:
    """What the update gives away of the labels, if it is more than a guess; None otherwise.

    An attack that claims labels alone is told in records, so that nobody takes its share for recovered ones.
    """
    name = _REDUCED["label_accuracy"]
    named = [(r, share) for r in rows if (i := r.metrics.get(name)) and (share := i.value) is not None]
    if not named:
        return None
    best, share = max(named, key=lambda pair: pair[1])
    guess = max((i.value or 0.0 for floor in best.floor.values() if (i := floor.get(name))), default=0.0)
    if share <= guess:
        return None
    ran = best.trials - best.failed
    counted = size * ran if size and not best.success_rate.records else None
    return {
        "attack": best.attack, "share": share, "guess": guess, "records": counted,
        "read": None if counted is None else round(share * counted),
    }  # fmt: skip


def _said(labels: Mapping[str, Any] | None) -> str:
    if labels is None:
        return ""
    guess = f"(guessing: {labels['guess']:.0%})"
    if labels["records"] is None:
        return f" {labels['attack']} names {labels['share']:.0%} of the labels {guess}."
    return f" {labels['attack']} reads the labels of {labels['read']} of {labels['records']} records {guess}."


def _severity(row: Summary) -> tuple[float, float]:
    psnr = row.metrics.get("psnr_mean_per_image")
    return row.success_rate.value, psnr.value if psnr and psnr.value is not None else 0.0


def _gate_result(gate: Gate | None, findings: Sequence[Finding], tested: Sequence[str]) -> dict[str, Any] | None:
    if gate is None:
        return None
    measured = [
        (f, i, value)
        for f in findings
        if f.defense in tested and f.attack not in _baselines() and not f.control
        for i, record in enumerate(f.records)
        if (value := record.get(gate.metric)) is not None
    ]
    over = [row for row in measured if gate.exceeded_by(row[2])]
    limit = f"{gate.metric}={gate.threshold:g}"
    if not measured:
        sentence = f"Gate {limit} not shown: no attack of this run could be scored by {gate.metric}."
    elif over:
        worst, record, value = over[0]
        first = f"{worst.attack} on {worst.defense}, trial {worst.trial}, record {record}: {value:.3f}"
        sentence = f"Gate {limit} failed: {len(over)} results reach it, the first is {first}."
    else:
        sentence = f"Gate {limit} held: no record reached it."
    return {
        "metric": gate.metric,
        "threshold": gate.threshold,
        "passed": bool(measured) and not over,
        "sentence": sentence,
    }


def _baselines() -> frozenset[str]:
    find: Callable[[str], dict[str, Any]] = catalog.find
    return frozenset(name for name, attack in find("attacks").items() if attack.baseline)
