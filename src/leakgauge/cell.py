"""One cell of the table: one attack against one configuration, on all trials or on those that are still missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.engine.memory import is_out_of_memory
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.fl.trained_on import scores_beside
from leakgauge.flags import FLAGS, generator_flags, objective_fell, oracle_flags, ran_out_of_time
from leakgauge.meeting import Meeting
from leakgauge.metrics.assignment import NOT_FOUND
from leakgauge.metrics.scoring import Scores, score
from leakgauge.plan import ON_A_DECOY, Cell, OnDecoy, parse_chain
from leakgauge.stage import Stage
from leakgauge.types import (
    CRITERION,
    NOT_APPLICABLE,
    Batch,
    DataSpec,
    Fact,
    Finding,
    Reconstruction,
    ThreatModel,
)
from leakgauge.verdict import is_recovered

FLOOR = ThreatModel(
    "floor", "knows the kind of data and nothing of the update", "baseline",
    frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.PUBLIC_DATA}),
)  # fmt: skip
_TOLD = 24  # values of an objective that a report keeps per trial: enough for a curve, little enough for 500 trials
Done = tuple[list[Finding], Tensor | None]  # findings, and what was recovered: (T, N, *shape), blank where not run


def run_cell(
    stage: Stage,
    cell: Cell,
    earlier: Sequence[Finding],
    progress: Callable[[float], None],
    trials: Sequence[int] | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> Done:
    """One cell on `trials` (all of them unless given). After an interrupt: the trials that were finished by then.

    `notice` is told what is known against the attack before it starts.
    """
    wanted = list(range(stage.scenario.trials) if trials is None else trials)
    seeds = [stage.scenario.seeds[t] for t in wanted]
    attack, control = (cell.attack.attack, True) if isinstance(cell.attack, OnDecoy) else (cell.attack, False)
    try:
        defenses = parse_chain(cell.defense)
        truth = stage.crowd if attack.baseline else stage.behind(defenses)  # a floor stands for every record
        behind = stage.decoys(defenses) if control else truth  # the update's own samples; scores are the truth's
        told = FLOOR if attack.baseline else stage.threat_model
        meeting = Meeting(stage, attack, defenses, told, behind, cell.adaptive)
        for concern in meeting.concerns(wanted[0]):
            notice(f"{cell.label}: {FLAGS[concern].reason}")
        result = meeting.of(wanted, progress)
        whole = _finished(result)
        if not whole:
            raise KeyboardInterrupt
        ran = [wanted[row] for row in whole]
        result = _as_many_as_there_are(result.take(whole), truth, stage)
        scores = score(truth.take(ran), result, stage.data, stage.metrics)
        if not (control or cell.adaptive or attack.baseline):  # an informed attacker gives the client's own samples
            more = scores_beside(
                truth.take(ran), result.inputs, defenses, [stage.scenario.seeds[t] for t in ran], stage.data
            )
            scores = dataclasses.replace(scores, records=dict(scores.records) | more)
    except BadInput:
        raise
    except (LeakgaugeError, RuntimeError) as error:  # this cell failed; it stays in the table as failed
        if not isinstance(error, LeakgaugeError) and not is_out_of_memory(error):
            raise
        kind = NOT_APPLICABLE if isinstance(error, NotApplicable) else ""
        text = f"{kind}{str(error) or type(error).__name__}"
        return [_failed(cell, t, seed, text) for t, seed in zip(wanted, seeds, strict=True)], None
    flags = [*oracle_flags(told), *meeting.concerns(wanted[0]), *generator_flags(attack, truth.take(ran))]
    if ran_out_of_time(attack, result):
        flags.append("time-budget-spent")
    if defenses and meeting.defense_did_nothing(ran):
        flags.append("defense-without-effect")
    findings = _findings(cell, ran, result, scores, stage, flags, earlier)
    own = None if scores.matched is None else scores.matched[:, : stage.scenario.batch_size]
    return findings, _pictures(own, ran, stage.scenario.trials)


def _as_many_as_there_are(result: Reconstruction, truth: Batch, stage: Stage) -> Reconstruction:
    """For an attacker who believes in another number of samples: the first claims, or none for those it missed."""
    if Fact.NUM_SAMPLES not in stage.believed or result.inputs is None:
        return result
    samples = truth.inputs.shape[1]
    claims = result.inputs[:, :samples]
    missing = claims.new_full((len(claims), samples - claims.shape[1], *claims.shape[2:]), NOT_FOUND)
    return dataclasses.replace(result, inputs=torch.cat((claims, missing), 1), labels=None)


def _finished(result: Reconstruction) -> list[int]:
    """Rows of the result that an interrupt did not cut off."""
    if result.finished is None:
        return list(range(len(result.objective)))
    rows: list[int] = torch.nonzero(result.finished)[:, 0].tolist()
    return rows


def _pictures(matched: Tensor | None, ran: Sequence[int], trials: int) -> Tensor | None:
    """What was recovered at its place among all trials."""
    if matched is None or len(ran) == trials:
        return None if matched is None else matched.cpu()
    blank = torch.zeros(trials, *matched.shape[1:], dtype=matched.dtype)
    blank[list(ran)] = matched.cpu()
    return blank


def _findings(
    cell: Cell,
    ran: Sequence[int],
    result: Reconstruction,
    scores: Scores,
    stage: Stage,
    flags: list[str],
    earlier: Sequence[Finding],
) -> list[Finding]:
    records = {name: values.tolist() for name, values in scores.records.items()}  # metric -> T x N
    guesses = {f.trial: f for f in earlier if f.attack == "mean-image"}
    beside = (cell.label + ON_A_DECOY, cell.defense, cell.adaptive)
    decoys = {f.trial: f for f in earlier if (f.attack, f.defense, f.adaptive) == beside}
    fell, failed = objective_fell(result).tolist(), scores.failed.tolist()
    labels = None if scores.label_accuracy is None else scores.label_accuracy.tolist()
    traces = _traces(result)
    rows = []
    for t, trial in enumerate(ran):
        means: dict[str, float | None] = {name: sum(v[t]) / len(v[t]) for name, v in records.items()}
        means["label_accuracy"] = None if labels is None else labels[t]
        own = [*flags, *(["diverged"] if failed[t] else []), *([] if fell[t] else ["objective-did-not-fall"])]
        count = max((len(v[t]) for v in records.values()), default=0)
        each = tuple({name: v[t][i] for name, v in records.items()} for i in range(count))
        if not cell.attack.baseline and trial in guesses and _no_better(stage.data, means, each, guesses[trial]):
            own.append("no-better-than-mean")
        if trial in decoys and not _beats(stage.data, means, decoys[trial]):
            own.append("no-better-than-decoy")
        objective = float(result.objective[t])
        rows.append(
            Finding(
                attack=cell.label, defense=cell.defense, adaptive=cell.adaptive, trial=trial,
                seed=stage.scenario.seeds[trial], scores=means,
                records=each,
                objective=objective if torch.isfinite(result.objective[t]) else None,
                steps=int(result.steps[t]), evaluations=int(result.evaluations[t]),
                seconds=result.seconds / len(ran), flags=tuple(sorted(own)), spec=cell.attack.spec,
                note="" if result.notes is None else result.notes[t],
                control=isinstance(cell.attack, OnDecoy),
                certified=None if result.certified is None else int(result.certified[t]),
                trace=traces[t],
            )
        )  # fmt: skip
    return rows


def _traces(result: Reconstruction) -> list[tuple[float, ...]]:
    """Per trial a few values of the own objective, from the first check of the kept attempt to its last."""
    if result.trace is None:
        return [()] * len(result.objective)
    told = []
    for row in result.trace.detach().double().cpu():
        known = row[torch.isfinite(row)]  # behind its end there is nothing
        picks = torch.linspace(0, max(0, len(known) - 1), min(_TOLD, len(known))).round().long()
        told.append(tuple(float(f"{value:.4g}") for value in known[picks].tolist()))
    return told


def _no_better(
    data: DataSpec, means: Mapping[str, float | None], each: Sequence[Mapping[str, float | None]], guess: Finding
) -> bool:
    """Does the mean of public data score as well, and is no record of the trial recovered by the criterion?"""
    floors = [f for r in guess.records[: len(each)] if (f := r.get("psnr")) is not None]
    mine, floor = means.get("psnr"), sum(floors) / len(floors) if floors else guess.scores.get("psnr")
    recovered = any(is_recovered(data, r, g) for r, g in zip(each, guess.records, strict=False))
    return mine is not None and floor is not None and mine <= floor and not recovered


def _beats(data: DataSpec, means: Mapping[str, float | None], decoy: Finding) -> bool:
    """Does the attack score better than its control? By the criterion's metric; True without a score."""
    name = CRITERION[data.kind][0]
    mine, other = means.get(name), decoy.scores.get(name)
    if mine is None or other is None:
        return True
    return mine > other if catalog.get("metrics", name).higher_is_better else mine < other


def _failed(cell: Cell, trial: int, seed: int, error: str) -> Finding:
    return Finding(
        cell.label, cell.defense, cell.adaptive, trial, seed, {}, error=error, spec=cell.attack.spec,
        control=isinstance(cell.attack, OnDecoy),
    )  # fmt: skip
