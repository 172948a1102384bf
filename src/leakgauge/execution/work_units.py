"""The work of an audit in pieces that can run anywhere: a unit is some trials of one cell.

`UnitRunner(setup).parts(unit, callbacks)` runs one in the process that has loaded the setup. Who runs which unit where
is decided in `leakgauge.execution.scheduler`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from leakgauge.engine.memory import is_out_of_memory
from leakgauge.errors import LeakgaugeError
from leakgauge.execution.batching import SIZES, asks_again, within
from leakgauge.execution.store import Trial
from leakgauge.execution.table_cell import LastTrialRun, failed, run_cell
from leakgauge.setup.plan import Cell, OnDecoy
from leakgauge.setup.setup import Setup


@dataclass(frozen=True)
class WorkUnit:
    """Some trials of one cell."""

    key: str  # of the cell, in the store
    number: int  # among the units of the cell
    cell: Cell
    trials: tuple[int, ...]
    time_share: float = 1.0  # of the attack's time budget, which is for the whole cell
    changes: Mapping[str, Any] = field(default_factory=dict)  # other values for fields of the setup; see `audit.ledger`
    at_once: int | None = None  # trials side by side, where more did not fit into memory

    @property
    def name(self) -> tuple[str, int]:
        """What identifies it, and what is left of it."""
        return self.key, self.number

    def without(self, done: Iterable[int]) -> WorkUnit:
        """The rest of it."""
        gone = set(done)
        left = tuple(t for t in self.trials if t not in gone)
        return dataclasses.replace(self, trials=left, time_share=self.time_share * len(left) / len(self.trials))


@dataclass(frozen=True)
class Part:
    """Trials of a unit that are done. A part that an interrupt cut short is reported but not kept: trials that run
    beside other ones round otherwise, so its unit is run again."""

    trials: tuple[Trial, ...]
    whole: bool = True


@dataclass(frozen=True)
class Callbacks:
    """What is called while a unit runs."""

    progress: Callable[[WorkUnit, float], None] = lambda *_: None  # share of the unit that is done
    notice: Callable[[str], None] = lambda _: None  # what is known against the attack


class UnitRunner:
    """Runs units on one setup, in the process that has loaded it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._last = LastTrialRun()

    def parts(self, unit: WorkUnit, callbacks: Callbacks) -> Iterator[Part]:
        """The trials of a unit, as many at once as memory allows, each lot as soon as it is done."""
        setup = dataclasses.replace(self._setup, **unit.changes) if unit.changes else self._setup
        callbacks.progress(unit, 0.0)
        size, done = self._at_once(setup, unit), 0
        while done < len(unit.trials):
            trials = unit.trials[done : done + size]
            share = len(trials) / len(unit.trials)
            cell = _with_time(unit.cell, unit.time_share * share)
            progress = partial(within, partial(callbacks.progress, unit), done / len(unit.trials), share)
            findings, pictures = run_cell(setup, cell, progress, trials, callbacks.notice, self._last)
            spec = unit.cell.attack.spec  # without the share of time
            kept = [dataclasses.replace(f, spec=spec) for f in findings]
            done_now = tuple(Trial(f, None if pictures is None else pictures[row]) for row, f in enumerate(kept))
            yield Part(done_now, whole=len(findings) == len(trials))
            done += len(trials)

    def _at_once(self, setup: Setup, unit: WorkUnit) -> int:
        if unit.at_once == 1:
            return 1
        try:
            fit = self._last.of(setup, _with_time(unit.cell, unit.time_share)).at_once(unit.trials)
        except (LeakgaugeError, RuntimeError) as error:  # the run itself will raise it again
            if not isinstance(error, LeakgaugeError) and not is_out_of_memory(error):
                raise
            fit = len(unit.trials)
        return max(1, min(fit, unit.at_once or fit))


def units_of(
    key: str, cell: Cell, left: Sequence[int], trials: int, device: torch.device, slots: int, changes: Mapping[str, Any]
) -> list[WorkUnit]:
    """What is `left` of a cell's `trials`, in units whose bounds are the same in every run."""
    size = SIZES[device.type]
    groups: dict[int, list[int]] = {}
    for trial in left:
        groups.setdefault(trial // size, []).append(trial)
    beside = min(slots, len(groups))  # units that run at the same time do not wait for one another's share
    return [
        WorkUnit(key, number, cell, tuple(group), min(1.0, beside * len(group) / trials), changes)
        for number, group in groups.items()
    ]


def failed_part(setup: Setup, unit: WorkUnit, error: str) -> Part:
    """The trials of a unit that could not be run, as failures that stay in the table."""
    return Part(tuple(Trial(failed(setup, unit.cell, trial, error), None) for trial in unit.trials))


def _with_time(cell: Cell, share: float) -> Cell:
    """The cell with its share of time. A server that asks again has a budget for every single victim."""
    attack = cell.attack.attack if isinstance(cell.attack, OnDecoy) else cell.attack
    budget = getattr(attack, "time_budget", None)
    if budget is None or share == 1.0 or asks_again(attack):
        return cell
    attack = attack.with_fields(time_budget=budget * share) or attack
    if isinstance(cell.attack, OnDecoy):
        return dataclasses.replace(cell, attack=dataclasses.replace(cell.attack, attack=attack))
    return dataclasses.replace(cell, attack=attack)
