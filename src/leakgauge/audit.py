"""The pipe: Scenario -> client step (+ defences) -> what the attacker sees -> attacks -> scores -> AuditReport.

The private batch goes to the client step and to the scores, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge import catalog
from leakgauge.chunked import reconstruct
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.fl.chain import prepared
from leakgauge.fl.observe import facts_about, observe
from leakgauge.flags import FLAGS, is_unchanged, objective_fell, oracle_flags
from leakgauge.metrics.scoring import Scores, score
from leakgauge.plan import Cell, configurations, parse_chain, plan
from leakgauge.stage import Stage, environment, set_stage
from leakgauge.store import Store, key_of
from leakgauge.types import (
    NOT_APPLICABLE,
    AuditReport,
    DataSpec,
    Fact,
    Finding,
    Pictures,
    Reconstruction,
    Scenario,
    TamperingServer,
    ThreatModel,
)
from leakgauge.verdict import Gate, conclude, is_recovered, summarise

FLOOR = ThreatModel(
    "floor", "knows the kind of data and nothing of the update", "baseline",
    frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.PUBLIC_DATA}),
)  # fmt: skip
Watch = Callable[[int, int, str, float], None]  # cell number, cells in all, what runs now, share of it done


def run_audit(
    scenario: Scenario,
    *,
    out: Path | None = None,
    undefended: bool = True,
    data_root: Path | None = None,
    device: str = "auto",
    fresh: bool = False,
    watch: Watch = lambda *_: None,
) -> tuple[AuditReport, Pictures]:
    """Run every cell of `scenario` and say what was recovered.

    With `out`, each finished cell is kept there and reused by the same scenario unless `fresh`. `undefended` adds
    the bare update for comparison. A keyboard interrupt ends the run early: the report holds the finished cells and
    says so.
    """
    gate = Gate.parse(scenario.gate) if scenario.gate is not None else None
    cells = plan(scenario, undefended)
    stage = set_stage(scenario, data_root, device)
    store = Store(out) if out else None
    if store:
        store.save_truth(stage.batch.inputs)
    findings: list[Finding] = []
    recovered: dict[str, Tensor] = {}
    keys: dict[str, str] = {}
    interrupted = False
    try:
        for number, cell in enumerate(cells):
            key = key_of(stage=stage.key, attack=cell.attack.spec, defense=cell.defense, adaptive=cell.adaptive)
            watch(number, len(cells), cell.name, 0.0)
            done = store.load_cell(key) if store and not fresh else None
            if done is None:
                done = run_cell(stage, cell, findings, partial(watch, number, len(cells), cell.name))
                if store and not all(f.error for f in done[0]):  # what could not run is tried again next time
                    store.save_cell(key, *done)
            findings += done[0]
            keys[cell.name] = key
            if done[1] is not None:
                recovered[cell.name] = done[1]
    except KeyboardInterrupt:
        interrupted = True
    if store:
        store.save_cells_of_report(keys)
    report = _report(stage, findings, gate, interrupted)
    return report, Pictures(stage.batch.inputs.cpu(), recovered)


def run_cell(
    stage: Stage, cell: Cell, earlier: Sequence[Finding], progress: Callable[[float], None]
) -> tuple[list[Finding], Tensor | None]:
    """One cell: the findings of all trials and what was recovered, (T, N, *shape) or None."""
    try:
        defenses = parse_chain(cell.defense)
        sent = stage.model
        if isinstance(cell.attack, TamperingServer):
            sent = _tampered(stage, cell.attack)
        update = stage.update(defenses, sent)
        told = FLOOR if cell.attack.baseline else stage.threat_model
        model = prepared(sent, *defenses)
        facts = facts_about(model, stage.batch, stage.data, stage.scenario.local, stage.public)
        result = reconstruct(cell.attack, observe(model, update, told, facts), stage.scenario.seeds, progress)
        scores = score(stage.batch, result, stage.data, stage.metrics)
    except BadInput:
        raise
    except (LeakgaugeError, torch.OutOfMemoryError) as error:  # this cell failed; it stays in the table as failed
        kind = NOT_APPLICABLE if isinstance(error, NotApplicable) else ""
        return [
            _failed(cell, t, s, f"{kind}{str(error) or type(error).__name__}")
            for t, s in enumerate(stage.scenario.seeds)
        ], None
    flags = list(oracle_flags(told))
    if defenses and is_unchanged(update, stage.update((), sent)):
        flags.append("defense-without-effect")
    findings = _findings(cell, result, scores, stage, flags, earlier)
    return findings, None if scores.matched is None else scores.matched.cpu()


def _tampered(stage: Stage, server: TamperingServer) -> nn.Module:
    allowed = {"nothing": (), "parameters": ("parameters",), "architecture": ("parameters", "architecture")}
    if server.changes not in allowed[stage.threat_model.may_change]:
        raise NotApplicable(
            f"{server.name} changes the model's {server.changes}, which {stage.threat_model.name!r} may not; "
            f"use --threat-model malicious-{server.changes}"
        )
    return server.prepare(stage.model, stage.data)


def _findings(
    cell: Cell, result: Reconstruction, scores: Scores, stage: Stage, flags: list[str], earlier: Sequence[Finding]
) -> list[Finding]:
    records = {name: values.tolist() for name, values in scores.records.items()}  # metric -> T x N
    guesses = {f.trial: f for f in earlier if f.attack == "mean-image"}
    fell, failed = objective_fell(result).tolist(), scores.failed.tolist()
    labels = None if scores.label_accuracy is None else scores.label_accuracy.tolist()
    rows = []
    for t, seed in enumerate(stage.scenario.seeds):
        means: dict[str, float | None] = {name: sum(v[t]) / len(v[t]) for name, v in records.items()}
        means["label_accuracy"] = None if labels is None else labels[t]
        own = [*flags, *(["diverged"] if failed[t] else []), *([] if fell[t] else ["objective-did-not-fall"])]
        count = stage.scenario.batch_size if records else 0
        each = tuple({name: v[t][i] for name, v in records.items()} for i in range(count))
        if not cell.attack.baseline and t in guesses and _no_better(stage.data, means, each, guesses[t]):
            own.append("no-better-than-mean")
        objective = float(result.objective[t])
        rows.append(
            Finding(
                attack=cell.label, defense=cell.defense, adaptive=cell.adaptive, trial=t, seed=seed, scores=means,
                records=each,
                objective=objective if torch.isfinite(result.objective[t]) else None,
                steps=int(result.steps[t]), evaluations=int(result.evaluations[t]),
                seconds=result.seconds / stage.scenario.trials, flags=tuple(sorted(own)), spec=cell.attack.spec,
            )
        )  # fmt: skip
    return rows


def _no_better(
    data: DataSpec, means: Mapping[str, float | None], each: Sequence[Mapping[str, float | None]], guess: Finding
) -> bool:
    """Does the mean of public data score as well, and is no record of the trial recovered by the criterion?"""
    mine, floor = means.get("psnr"), guess.scores.get("psnr")
    recovered = any(is_recovered(data, r, g) for r, g in zip(each, guess.records, strict=False))
    return mine is not None and floor is not None and mine <= floor and not recovered


def _failed(cell: Cell, trial: int, seed: int, error: str) -> Finding:
    return Finding(cell.label, cell.defense, cell.adaptive, trial, seed, {}, error=error, spec=cell.attack.spec)


def _report(stage: Stage, findings: Sequence[Finding], gate: Gate | None, interrupted: bool) -> AuditReport:
    rows = summarise(findings, stage.data)
    floors = {name for name, attack in catalog.find("attacks").items() if attack.baseline}
    attacked = {f.defense for f in findings if f.attack not in floors}  # own attacks are in no catalogue
    run = [c for c in configurations(stage.scenario) if c in attacked]
    guarantees = {c: next((g for d in reversed(parse_chain(c)) if (g := d.guarantee())), None) for c in run}
    raised = sorted({flag for f in findings for flag in f.flags})
    told = tuple(sorted(f.value for f in stage.threat_model.facts))
    return AuditReport(
        scenario=stage.scenario,
        data=stage.data,
        findings=tuple(findings),
        summary=rows,
        verdict=conclude(rows, findings, run, guarantees, gate),
        flags=tuple(FLAGS[flag] for flag in raised),
        told=told,
        environment=environment(stage.batch.inputs.device),
        interrupted=interrupted,
    )
