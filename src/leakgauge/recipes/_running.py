"""Runs a recipe's scenarios, each once, and keeps every result in a file of its own.

RUNS/KEY.json    one scenario at one base seed: the findings of its attack, and where and how long it ran
A key is a hash of the scenario and our version. A file that is there is not made again, so a killed process goes on
where it stopped, and several can share one folder: each takes what no other is running.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import leakgauge
from leakgauge import catalog
from leakgauge.audit import Watch, run_audit
from leakgauge.errors import LeakgaugeError
from leakgauge.files import make_folder, write_whole
from leakgauge.recipes._claiming import claimed
from leakgauge.recipes._recipe import Cell, Run
from leakgauge.stage import pick_device
from leakgauge.store import key_of
from leakgauge.types import Finding, Scenario

SCHEMA = 1


@dataclass(frozen=True)
class Result:
    """What one scenario at one base seed gave."""

    findings: tuple[Finding, ...]  # of the asked attack: plain, then those who know the defence
    environment: Mapping[str, str]
    seconds: float  # wall clock of the whole run, loading and floors included


def run_all(
    scenarios: Iterable[Scenario],
    runs: Path,
    *,
    device: str = "auto",
    data_root: Path | None = None,
    fresh: bool = False,
    watch: Watch = lambda *_: None,
    finished: Callable[[Scenario], None] = lambda _: None,
) -> dict[Scenario, str]:
    """Run what is not yet in `runs`; gives the scenarios that cannot be run here, with the reason.

    What another process is running is left for last and then waited for. `finished` is called after each scenario. A
    keyboard interrupt leaves the finished ones in place.
    """
    make_folder(runs)
    pick_device(device)  # refused at once, not scenario by scenario
    refused: dict[Scenario, str] = {}
    wanted = list(scenarios)
    left, done = wanted, 0
    for wait in (False, True):
        elsewhere = []
        for scenario in left:
            with claimed(_path(scenario, runs), wait=wait) as mine:
                if not mine:
                    elsewhere.append(scenario)
                    continue
                if fresh or load(scenario, runs) is None:
                    now = _within(watch, done, len(wanted), describe(scenario))
                    now(0, 1, "", 0.0)
                    try:
                        save(scenario, runs, run_one(scenario, device, data_root, now))
                    except LeakgaugeError as error:
                        refused[scenario] = str(error)
            done += 1
            finished(scenario)
        left = elsewhere
    return refused


def run_one(scenario: Scenario, device: str, data_root: Path | None, watch: Watch = lambda *_: None) -> Result:
    """One scenario, its one attack; raises if the attack cannot run on it."""
    began = time.perf_counter()
    report, _ = run_audit(scenario, undefended=False, device=device, data_root=data_root, watch=watch)
    if report.interrupted:  # half a scenario is no result
        raise KeyboardInterrupt
    floors = {name for name, attack in catalog.find("attacks").items() if attack.baseline}
    findings = tuple(f for f in report.findings if f.attack not in floors)
    broken = next((f.error for f in findings if f.error), None)
    if broken is not None:
        raise LeakgaugeError(broken)
    return Result(findings, report.environment, time.perf_counter() - began)


def results_of(run: Run, runs: Path) -> tuple[Result, ...] | None:
    """All base seeds of a run, or None while one is missing."""
    found = [load(scenario, runs) for scenario in run.scenarios]
    return tuple(r for r in found if r is not None) if all(found) else None


def findings_of(cell: Cell, results: Iterable[Result]) -> tuple[Finding, ...]:
    """The victims of a cell, pooled over base seeds.

    A defence may know several adaptive attacks; the one that recovers most on average speaks for all of them.
    """
    groups: dict[str, list[Finding]] = {}
    for finding in (f for r in results for f in r.findings if f.adaptive == (cell.variant == "adaptive")):
        groups.setdefault(finding.spec, []).append(finding)
    if not groups:
        return ()
    return max((tuple(group) for group in groups.values()), key=_mean_psnr)


def _mean_psnr(findings: tuple[Finding, ...]) -> float:
    return sum(f.scores.get("psnr") or 0.0 for f in findings) / len(findings)


def save(scenario: Scenario, runs: Path, result: Result) -> None:
    plain = {
        "schema": SCHEMA,
        "scenario": scenario.as_dict(),
        "environment": dict(result.environment),
        "seconds": result.seconds,
        "findings": [dataclasses.asdict(f) for f in result.findings],
    }
    write_whole(_path(scenario, runs), json.dumps(plain, allow_nan=False).encode())


def load(scenario: Scenario, runs: Path) -> Result | None:
    """A finished scenario, or None if it is not there or cannot be read (then it is done again)."""
    try:
        plain: dict[str, Any] = json.loads(_path(scenario, runs).read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            return None
        findings = tuple(
            Finding(**f | {"records": tuple(f["records"]), "flags": tuple(f["flags"])}) for f in plain["findings"]
        )
        return Result(findings, plain["environment"], plain["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def describe(scenario: Scenario) -> str:
    """One line for the progress bar."""
    local = f", M = {scenario.local.epochs}" if scenario.local.kind == "fedavg" else ""
    trained = f" after {scenario.training.rounds} rounds" if scenario.training.rounds else ""
    batch = f" x {scenario.batch_size}" if scenario.batch_size > 1 else ""
    against = f" against {' '.join(scenario.defenses)}" if scenario.defenses else ""
    return (
        f"{' '.join(scenario.attacks)}{against} on {scenario.model}{trained}, {scenario.data}{local}: "
        f"{scenario.trials} victims{batch}, seed {scenario.seed}"
    )


def _within(watch: Watch, number: int, count: int, name: str) -> Watch:
    """The cells of one audit as one piece of work among `count`."""
    return lambda cell, cells, _, share: watch(number, count, name, (cell + share) / cells)


def _path(scenario: Scenario, runs: Path) -> Path:
    return runs / f"{key_of(scenario=scenario.as_dict(), version=leakgauge.__version__)}.json"
