"""What a suite spends its time on: the seconds of each search, and which configurations need no further attack.

Each search of a configuration gets its share of the seconds that are left. What takes no time leaves its share to the
others; what suits the network gets more. A search whose step length falls along its steps has to know how many it can
take: a few steps on the same updates are timed once, and the attack's own time budget holds the search to its share. So
how far a search gets depends on the machine; its limits stand in each finding's `spec`, and a search that was cut short
is flagged.

Once every record of a configuration was recovered, later and costlier attacks show nothing new. The attacks together
are one attacker, as in the verdict's lower side; a score that is not credible ends nothing. The truth decides only what
the audit still spends time on: no attack sees it, and no result is picked by it. Without the truth only proofs count.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.audit.applicability import inner
from leakgauge.errors import LeakgaugeError
from leakgauge.matching.attempts import AVERAGED
from leakgauge.matching.updates import example_input
from leakgauge.metrics.criterion import criterion_of
from leakgauge.models.structure import has_kinks
from leakgauge.setup.plan import Cell, OnDecoy
from leakgauge.setup.setup import Setup
from leakgauge.types import Attack, Finding, Observation, TamperingServer
from leakgauge.verdict.credible import is_recovered, weighed
from leakgauge.verdict.roles import attacks_in, floors_in
from leakgauge.verdict.summary import all_proven

_LOOK, _MORE = 2, 6  # steps that are timed: the difference leaves out what happens once
_SLOW = 5.0  # seconds for the first of these, from which the second is not worth its time
_HALVING = 0.6  # cost of searches side by side beside as many to the end: the worse half is given up early
_FEWEST = 60  # steps below which a search shows nothing; the time budget stops it even so
_SHORTEST = 0.5  # seconds of any search
_SUITED = 3.0  # how much more time a search gets that suits the network
_INFORMED = 2.0  # and one that knows the defense


@dataclass
class Budget:
    """A clock for each configuration, and what one evaluation of all trials costs; asked before each search."""

    seconds: float  # for each configuration
    seconds_per_evaluation: float  # 0 where it is not known
    smooth: bool  # has the network no kinks?
    trials: int = 1
    until: dict[str, float] = field(default_factory=dict)  # configuration -> when its time is up

    def allotted(self, cell: Cell, later: Sequence[Cell]) -> Cell:
        """The cell with its share of its configuration's time; as it is where its attack does not search."""
        until = self.until.setdefault(cell.defense, time.monotonic() + self.seconds)
        if not searches(cell.attack):
            return cell
        mine = self._weight(cell)
        others = sum(self._weight(c) for c in later if c.defense == cell.defense)
        allowed = max(_SHORTEST, (until - time.monotonic()) * mine / (mine + others))
        attack = self.fitted(inner(cell.attack), allowed)
        if isinstance(cell.attack, OnDecoy):
            attack = dataclasses.replace(cell.attack, attack=attack)
        return dataclasses.replace(cell, attack=attack)

    def _weight(self, cell: Cell) -> float:
        """L-BFGS goes far on a smooth network and gets stuck on one with kinks, where first-order rules go on.

        An attacker who knows the defense is stronger, and decides the verdict.
        """
        if not searches(cell.attack):
            return 0.0
        curved = getattr(inner(cell.attack), "optimizer", "") == "lbfgs"
        return (_SUITED if curved == self.smooth else 1.0) * (_INFORMED if cell.adaptive else 1.0)

    def fitted(self, attack: Attack, seconds: float) -> Attack:
        """With a time budget, and no more steps than fit into it where their number shapes the search."""
        if isinstance(attack, TamperingServer) and attack.asks_again:  # it asks one victim after another
            seconds /= self.trials
        changed = attack.with_fields(time_budget=float(f"{seconds:.3g}")) or attack
        steps, rule = getattr(attack, "steps", None), getattr(attack, "optimizer", "adam")
        if steps is None or rule == "lbfgs" or not self.seconds_per_evaluation:
            return changed
        rows: float = attack.rows_per_trial
        if getattr(attack, "schedule", None) == AVERAGED:  # one attempt after another, each to its end
            rows = getattr(attack, "restarts", 1)
        elif rows > 1 and not isinstance(attack, Portfolio):  # whose members all run to their end
            rows *= _HALVING
        fit = int(seconds / (self.seconds_per_evaluation * rows))
        return changed.with_fields(steps=min(steps, max(_FEWEST, fit))) or changed


def searches(attack: Attack) -> bool:
    """Does it take as much time as it is given?"""
    return hasattr(inner(attack), "time_budget")


def seconds_per_evaluation(
    observation: Observation, seeds: Sequence[int], clock: Callable[[], float] = time.perf_counter
) -> float:
    """What one step of gradient matching on all these trials takes; 0 where it cannot be measured."""

    def timed(steps: int) -> float:
        began = clock()
        InvertingGradients(steps=steps, labels="optimise")(observation, seeds)
        return clock() - began

    try:
        first = timed(_LOOK)
        if first > _SLOW:
            return first / _LOOK
        return max(timed(_LOOK + _MORE) - first, 1e-6 * first) / _MORE
    except (LeakgaugeError, RuntimeError):  # the model cannot be searched; its cells will say why
        return 0.0


def budget_of(seconds: float, observation: Observation, seeds: Sequence[int]) -> Budget:
    """After a short look at what a step costs on these updates."""
    smooth = not has_kinks(observation.model, example_input(observation))
    return Budget(seconds, seconds_per_evaluation(observation, seeds), smooth, len(seeds))


def why_stopped(setup: Setup, findings: Sequence[Finding], recovered: Mapping[str, Tensor], defense: str) -> str:
    """Why no further attack on this configuration is needed, in words; empty if something is left to attack."""
    if not setup.scored:
        mine = [f for f in findings if f.defense == defense]
        every = all_proven(mine, setup.victims.trials, setup.victims.samples)
        return "not needed: every record carries a proof of its own" if every else ""
    names = stopped_by(setup, findings, recovered, defense)
    return f"not needed: {' and '.join(names)} recovered every record" if names else ""


def stopped_by(
    setup: Setup, findings: Sequence[Finding], recovered: Mapping[str, Tensor], defense: str
) -> tuple[str, ...]:
    """The attacks that together recovered every record of this configuration; none if some are left."""
    mine, rule = [f for f in attacks_in(findings) if f.defense == defense], criterion_of(setup.data)
    wanted = {(trial, record) for trial in range(setup.scenario.trials) for record in range(setup.scenario.batch_size)}
    if not wanted <= {(f.trial, i) for f in mine for i, record in enumerate(f.records) if rule.met(record)}:
        return ()
    names: dict[str, None] = {}
    for f in weighed(setup, mine, recovered, floors_in(findings))[0]:
        found = {(f.trial, i) for i in range(len(f.records)) if is_recovered(setup.data, f, i)} & wanted
        if found:
            wanted -= found
            names[f.attack + (" (knowing the defense)" if f.adaptive else "")] = None
    return () if wanted else tuple(names)
