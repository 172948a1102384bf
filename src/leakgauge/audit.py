"""The pipe: Scenario -> client step (+ defences) -> what the attacker sees -> attacks -> scores -> AuditReport.

The private batch goes to the client step and to the scores, and nowhere else.
"""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import leakgauge
from leakgauge import catalog
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.fl.chain import chain, client_step, prepared
from leakgauge.fl.observe import facts_about, observe
from leakgauge.flags import FLAGS, is_unchanged, objective_fell, oracle_flags
from leakgauge.metrics.scoring import Scores, score
from leakgauge.models import load_model
from leakgauge.store import Store, content_of, key_of
from leakgauge.types import (
    Attack,
    AuditReport,
    Batch,
    DataSpec,
    Defense,
    Fact,
    Finding,
    Pictures,
    Reconstruction,
    Scenario,
    SharedUpdate,
    TamperingServer,
    ThreatModel,
    cell_name,
    threat_model,
)
from leakgauge.verdict import UNDEFENDED, Gate, conclude, summarise

# The attacks of an audit that names none. Looser than the attacks' own defaults: enough to recognise a picture.
DEFAULT_SUITE = ("linear", "idlg:steps=80,restarts=1,threshold=0.001", "dlg:steps=80,restarts=1,threshold=0.001")
FLOOR = ThreatModel(
    "floor", "knows the kind of data and nothing of the update", "baseline",
    frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.PUBLIC_DATA}),
)  # fmt: skip
PUBLIC_SAMPLES = 512

Watch = Callable[[int, int, str, float], None]  # cell number, cells in all, what runs now, share of it done


@dataclass(frozen=True)
class Cell:
    """One attack against one configuration."""

    attack: Attack
    defense: str
    adaptive: bool

    @property
    def name(self) -> str:
        return cell_name(self.attack.name, self.defense, self.adaptive)


@dataclass(frozen=True)
class Stage:
    """Everything a scenario names, loaded: built once, read by every cell."""

    scenario: Scenario
    data: DataSpec
    model: nn.Module
    batch: Batch
    public: Batch | None
    threat_model: ThreatModel
    key: str  # of all that a cell depends on besides its attack and defence

    def update(self, defenses: Sequence[Defense], model: nn.Module) -> SharedUpdate:
        step = chain(client_step(self.scenario.local), *defenses)
        return step(prepared(model, *defenses), self.batch, self.scenario.seeds)


def run_audit(
    scenario: Scenario,
    *,
    out: Path | None = None,
    gate: Gate | None = None,
    variants: str = "both",
    undefended: bool = True,
    data_root: Path | None = None,
    device: str = "auto",
    fresh: bool = False,
    watch: Watch = lambda *_: None,
) -> tuple[AuditReport, Pictures]:
    """Run every cell of `scenario` and say what was recovered.

    With `out`, each finished cell is kept there and reused by the same scenario unless `fresh`. `variants` is "both",
    "plain" or "adaptive"; `undefended` adds the bare update for comparison. A keyboard interrupt ends the run early:
    the report holds the finished cells and says so.
    """
    stage = set_stage(scenario, data_root, device)
    cells = plan(scenario, variants, undefended)
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
                if store:
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


def set_stage(scenario: Scenario, data_root: Path | None, device: str) -> Stage:
    """Load what the scenario names; every mistake in it is found here, before anything runs."""
    where = pick_device(device)
    told = threat_model(scenario.threat_model)
    victims = load(scenario.data, "test", data_root)
    model = load_model(scenario.model, victims.spec, scenario.seed, scenario.weights).to(where)
    batch = draw_victims(victims, scenario.trials, scenario.batch_size, scenario.seed, scenario.batch_labels)
    try:
        public: Batch | None = _to(
            public_batch(load(scenario.data, "train", data_root), PUBLIC_SAMPLES, scenario.seed), where
        )
    except BadInput:
        public = None  # own data too small to share any: attacks and floors that need public data say so
    depends = dataclasses.replace(scenario, attacks=(), defenses=()).as_dict()
    chains = [part for chain_text in scenario.defenses for part in chain_text.split("+")]
    named = (scenario.model, scenario.data, scenario.weights, *scenario.attacks, *chains)
    contents = sorted({content_of(spec) for spec in named})
    key = key_of(scenario=depends, contents=contents, version=leakgauge.__version__, device=where.type)
    return Stage(scenario, victims.spec, model, _to(batch, where), public, told, key)


def plan(scenario: Scenario, variants: str = "both", undefended: bool = True) -> list[Cell]:
    """The floors first, then per configuration each attack, plain and as one who knows the defence."""
    attacks = [catalog.build("attacks", spec) for spec in scenario.attacks or DEFAULT_SUITE]
    cells = [Cell(a(), UNDEFENDED, False) for a in catalog.find("attacks").values() if a.baseline]
    for configuration in configurations(scenario, undefended):
        defenses = parse_chain(configuration)
        for attack in (a for a in attacks if not a.baseline):
            if variants != "adaptive" or not defenses:
                cells.append(Cell(attack, configuration, False))
            if variants != "plain":
                cells += [Cell(a, configuration, True) for a in adaptive_attacks(attack, defenses)]
    return cells


def configurations(scenario: Scenario, undefended: bool = True) -> tuple[str, ...]:
    """The undefended update for comparison (or because nothing else is there), then each chain under test."""
    chains = tuple(d for d in scenario.defenses if d != UNDEFENDED)
    return (UNDEFENDED, *chains) if undefended or not chains else chains


def parse_chain(configuration: str) -> tuple[Defense, ...]:
    """`clip:norm=1+gaussian:std=0.1` -> the defences in the order they act."""
    if configuration == UNDEFENDED:
        return ()
    return tuple(catalog.build("defenses", part) for part in configuration.split("+"))


def adaptive_attacks(attack: Attack, defenses: Iterable[Defense]) -> tuple[Attack, ...]:
    """The attack as one who knows all defences of the chain; empty if that changes nothing."""
    informed: tuple[Attack, ...] = (attack,)
    for defense in defenses:
        informed = tuple(better for known in informed for better in (defense.adaptive(known) or (known,)))
    return tuple(a for a in informed if a != attack)


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
        result = cell.attack(observe(model, update, told, facts), stage.scenario.seeds, progress)
        scores = score(stage.batch, result, stage.data)
    except BadInput:
        raise
    except (LeakgaugeError, torch.OutOfMemoryError) as error:  # this cell failed; it stays in the table as failed
        kind = "not applicable: " if isinstance(error, NotApplicable) else ""
        return [_failed(cell, t, s, f"{kind}{error}") for t, s in enumerate(stage.scenario.seeds)], None
    flags = list(oracle_flags(told))
    if defenses and is_unchanged(update, stage.update((), sent)):
        flags.append("defense-without-effect")
    findings = _findings(cell, result, scores, stage, flags, earlier)
    return findings, None if scores.matched is None else scores.matched.cpu()


def pick_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:1`; refused if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        ok = device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < torch.cuda.device_count())
    except RuntimeError:
        ok = False
    if not ok:
        raise BadInput(
            "device", allowed="auto, cpu or a CUDA device of this machine", got=repr(name), do="use --device auto"
        )
    return device


def environment(device: torch.device) -> dict[str, str]:
    """Where a result was measured."""
    folder = Path(__file__).parent
    git = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    gpu = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return {
        "leakgauge": leakgauge.__version__,
        "commit": git.stdout.strip() if git.returncode == 0 else "installed package",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": f"{device.type}{gpu}",
        "threads": str(torch.get_num_threads()),
        "platform": f"{platform.system()} {platform.machine()}",
    }


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
    guesses = {f.trial: f.scores.get("psnr") for f in earlier if f.attack == "mean-image"}
    fell, failed = objective_fell(result).tolist(), scores.failed.tolist()
    labels = None if scores.label_accuracy is None else scores.label_accuracy.tolist()
    rows = []
    for t, seed in enumerate(stage.scenario.seeds):
        means: dict[str, float | None] = {name: sum(v[t]) / len(v[t]) for name, v in records.items()}
        means["label_accuracy"] = None if labels is None else labels[t]
        psnr, guess = means.get("psnr"), guesses.get(t)
        own = [*flags, *(["diverged"] if failed[t] else []), *([] if fell[t] else ["objective-did-not-fall"])]
        if not cell.attack.baseline and psnr is not None and guess is not None and psnr <= guess:
            own.append("no-better-than-mean")
        count = stage.scenario.batch_size if records else 0
        each = tuple({name: v[t][i] for name, v in records.items()} for i in range(count))
        objective = float(result.objective[t])
        rows.append(
            Finding(
                attack=cell.attack.name, defense=cell.defense, adaptive=cell.adaptive, trial=t, seed=seed, scores=means,
                records=each,
                objective=objective if torch.isfinite(result.objective[t]) else None,
                steps=int(result.steps[t]), evaluations=int(result.evaluations[t]),
                seconds=result.seconds / stage.scenario.trials, flags=tuple(sorted(own)), spec=cell.attack.spec,
            )
        )  # fmt: skip
    return rows


def _failed(cell: Cell, trial: int, seed: int, error: str) -> Finding:
    return Finding(cell.attack.name, cell.defense, cell.adaptive, trial, seed, {}, error=error, spec=cell.attack.spec)


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


def _to(batch: Batch, device: torch.device) -> Batch:
    return Batch(batch.inputs.to(device), batch.labels.to(device))
