"""Runs a recipe's scenarios and measurements, each once, and keeps every result in a file of its own.

RUNS/KEY.json    one of them at one base seed: the findings of its attack or its figures, and where and how long it ran
A key is a hash of all its settings and our version. A finished file is not made again: a killed process resumes where
it stopped, and processes can share one folder, each locking the piece that it runs.
"""

from __future__ import annotations

import base64
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import leakgauge
from leakgauge.audit.run import Watch, run_audit
from leakgauge.errors import LeakgaugeError, Unreadable
from leakgauge.execution.locks import claimed
from leakgauge.execution.scheduler import Transport
from leakgauge.lab.reproduce.budget import Budget
from leakgauge.lab.reproduce.recipe import Cell, Figures, Piece, Run, Study
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.reading.sealed import opened, sealed
from leakgauge.report.pictures import png_bytes
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import Finding, Pictures, Scenario, cell_name
from leakgauge.verdict.roles import is_floor

SCHEMA = 1
_EXPOSED = 3  # pictures kept of each attacker
_SMALL = 64  # px; larger ones are not kept


@dataclass(frozen=True)
class Result:
    """What one scenario or measurement at one base seed gave."""

    findings: tuple[Finding, ...]  # of the asked attack: plain, then those who know the defense
    environment: Mapping[str, str]
    seconds: float  # wall clock of the whole run, loading and floors included
    figures: Figures = field(default_factory=dict)  # of a measurement, which has no findings
    exposed: tuple[Mapping[str, Any], ...] = ()  # of each attacker the pictures that were recovered best


Job = tuple[Piece, Path]  # and the folder of finished runs where its result is kept


def run_all(
    pieces: Iterable[Piece], runs: Path, *, finished: Callable[[Piece], None] = lambda _: None, **more: Any
) -> dict[Piece, str]:
    """`run_jobs` with one folder for all."""
    refused = run_jobs([(piece, runs) for piece in pieces], finished=lambda job: finished(job[0]), **more)
    return {piece: reason for (piece, _), reason in refused.items()}


def run_jobs(
    jobs: Iterable[Job],
    *,
    device: str = "auto",
    data_root: Path | None = None,
    fresh: bool = False,
    executor: Transport | None = None,
    watch: Watch = lambda *_: None,
    finished: Callable[[Job], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    budget: Budget | None = None,
) -> dict[Job, str]:
    """Run the jobs that are not finished yet; returns those that cannot run here, with the reason.

    Jobs that another process runs come last, and are waited for. `executor` runs attacks on other workers;
    measurements always run in this process. `finished` is called after each job. A keyboard interrupt leaves finished
    jobs in place. `budget` decides which jobs still start, and counts the others.
    """
    pick_device(device)  # a wrong device is an error at once, not once for each piece
    wanted = list(dict.fromkeys(jobs))
    for folder in dict.fromkeys(runs for _, runs in wanted):
        make_folder(folder)
    refused: dict[Job, str] = {}
    left, done = wanted, 0
    for wait in (False, True):
        locked = []
        for job in left:
            piece, runs = job
            with claimed(_path(piece, runs), wait=wait and _has_time(budget), notice=notice) as mine:
                if not mine:
                    locked.append(job)
                    continue
                if fresh or load(piece, runs, notice) is None:
                    if budget is not None and not budget.allows(piece, runs):
                        continue
                    now = _within(watch, done, len(wanted), describe(piece))
                    now(0, 1, "", 0.0)
                    try:
                        save(piece, runs, run_one(piece, device, data_root, now, executor))
                    except LeakgaugeError as error:
                        refused[job] = str(error)
                    if torch.cuda.is_available():
                        torch.cuda.empty_cache()  # several processes may share one GPU
            done += 1
            finished(job)
        left = locked
    if budget is not None:
        budget.left += len(left)
    return refused


def _has_time(budget: Budget | None) -> bool:
    return budget is None or budget.is_open


def run_one(
    piece: Piece, device: str, data_root: Path | None, watch: Watch = lambda *_: None, executor: Transport | None = None
) -> Result:
    """Run a measurement, or one scenario with its one attack; raises if that cannot run here."""
    began = time.perf_counter()
    if not isinstance(piece, Scenario):
        figures = piece.figures(device, data_root, watch)
        where = environment(pick_device(device)) | {"model state": piece.setting}
        return Result((), where, time.perf_counter() - began, figures)
    report, pictures = run_audit(
        piece, undefended=False, device=device, data_root=data_root, executor=executor, watch=watch
    )
    if report.interrupted:  # half a scenario is not a result
        raise KeyboardInterrupt
    findings = tuple(f for f in report.findings if not is_floor(f.attack))
    broken = next((f.error for f in findings if f.error), None)
    if broken is not None:
        raise LeakgaugeError(broken)
    shown = most_exposed(findings, pictures) if report.data.kind == "image" else ()
    return Result(findings, report.environment, time.perf_counter() - began, exposed=shown)


def most_exposed(findings: Iterable[Finding], pictures: Pictures) -> tuple[Mapping[str, Any], ...]:
    """For each attacker the few pictures of the highest PSNR, true and recovered: PNG in base64."""
    groups: dict[str, list[tuple[float, Finding, int]]] = {}
    for finding in findings:
        cell = cell_name(finding.attack, finding.defense, finding.adaptive)
        if cell in pictures.recovered and max(pictures.true.shape[-2:]) <= _SMALL:
            own = finding.records[
                : pictures.true.shape[1]
            ]  # in a sum, the records of the other clients come after these
            for place, record in enumerate(own):
                groups.setdefault(cell, []).append((float(record.get("psnr") or 0.0), finding, place))
    return tuple(
        {
            "attack": finding.attack,
            "adaptive": finding.adaptive,
            "psnr": psnr,
            "trial": finding.trial,
            "true": _as_text(pictures.true[finding.trial, place]),
            "recovered": _as_text(pictures.recovered[cell][finding.trial, place]),
        }
        for cell, records in groups.items()
        for psnr, finding, place in sorted(records, key=lambda each: -each[0])[:_EXPOSED]
    )


def _as_text(picture: Tensor) -> str:
    return base64.b64encode(png_bytes(picture)).decode("ascii")


def results_of(run: Run | Study, runs: Path) -> tuple[Result, ...] | None:
    """All base seeds of a run, or None while one is missing."""
    found = [load(piece, runs) for piece in run.pieces]
    return tuple(r for r in found if r is not None) if all(found) else None


def findings_of(cell: Cell, results: Iterable[Result]) -> tuple[Finding, ...]:
    """The victims of a cell, pooled over base seeds.

    A defense may be known in several ways; the one that recovers most on average speaks for all of them.
    """
    groups: dict[str, list[Finding]] = {}
    knows = cell.variant == "adaptive"
    for finding in (f for r in results for f in r.findings if f.adaptive == knows and not f.is_decoy):
        groups.setdefault(finding.attack, []).append(finding)
    if not groups:
        return ()
    return max((tuple(group) for group in groups.values()), key=_closeness)


def figures_of(results: Iterable[Result]) -> Figures:
    """The samples of a measurement, pooled over base seeds."""
    pooled: dict[str, tuple[float, ...]] = {}
    for result in results:
        for name, sample in result.figures.items():
            pooled[name] = (*pooled.get(name, ()), *sample)
    return pooled


def _closeness(findings: tuple[Finding, ...]) -> float:
    """Mean PSNR of pictures; rows of a table have none, and the one with the least error comes closest."""
    if any(f.scores.get("psnr") is not None for f in findings):
        return sum(f.scores.get("psnr") or 0.0 for f in findings) / len(findings)
    errors = [e for f in findings if (e := f.scores.get("mse")) is not None]
    return -sum(errors) / len(errors) if errors else 0.0


def save(piece: Piece, runs: Path, result: Result) -> None:
    plain = {
        "schema": SCHEMA,
        _kind(piece): piece.as_dict(),
        "environment": dict(result.environment),
        "seconds": result.seconds,
        "findings": [dataclasses.asdict(f) for f in result.findings],
        "figures": dict(result.figures),
        "exposed": [dict(shown) for shown in result.exposed],
    }
    path = _path(piece, runs)
    write_whole(path, sealed(path.stem, plain), private=True)  # it may show the most exposed pictures


def load(piece: Piece, runs: Path, notice: Callable[[str], None] = lambda _: None) -> Result | None:
    """The finished result; None if there is none, or if the file is damaged: then `notice` is called."""
    path = _path(piece, runs)
    if not path.exists():
        return None
    try:
        plain: dict[str, Any] = opened(path, path.stem)
        if plain["schema"] != SCHEMA:
            return None
        findings = tuple(map(Finding.from_dict, plain["findings"]))
        figures = {name: tuple(sample) for name, sample in plain.get("figures", {}).items()}
        exposed = tuple(plain.get("exposed", ()))
        return Result(findings, plain["environment"], plain["seconds"], figures, exposed)
    except (Unreadable, LookupError, TypeError, AttributeError, ValueError) as error:
        notice(f"{path} is damaged ({error}): its run is done again")
        return None


def describe(piece: Piece) -> str:
    """One line for the progress bar."""
    if not isinstance(piece, Scenario):
        return piece.title
    scenario = piece
    local = f", M = {scenario.local.epochs}" if scenario.local.kind == "fedavg" else ""
    trained = f" after {scenario.training.rounds} rounds" if scenario.training.rounds else ""
    batch = f" x {scenario.batch_size}" if scenario.batch_size > 1 else ""
    against = f" against {' '.join(scenario.defenses)}" if scenario.defenses else ""
    if scenario.variants == "adaptive":
        against += f", assumed to be {scenario.assume}" if scenario.assume else ", known"
    return (
        f"{' '.join(scenario.attacks)}{against} on {scenario.model}{trained}, {scenario.data}{local}: "
        f"{scenario.trials} victims{batch}, seed {scenario.seed}"
    )


def _within(watch: Watch, number: int, count: int, name: str) -> Watch:
    """A watch for one piece among `count`: the table cells of its audit are shares of it."""
    return lambda cell, cells, _, share: watch(number, count, name, (cell + share) / cells)


def _kind(piece: Piece) -> str:
    return "scenario" if isinstance(piece, Scenario) else "measurement"


def _path(piece: Piece, runs: Path) -> Path:
    return runs / f"{key_of(**{_kind(piece): piece.as_dict()}, version=leakgauge.__version__)}.json"
