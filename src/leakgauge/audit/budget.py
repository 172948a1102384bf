"""The seconds of a suite, dealt out to the searches of each configuration: each gets its share of what is left.

What takes no time leaves its share to the others; what suits the network gets more. A search whose
step length falls along its steps has to know how many it can take: that is estimated from a few steps on the same
updates, timed once, and held by the attack's own time budget. So how far a search gets depends on the machine; what it
was given is in each finding's `spec`, and a search that was cut short is flagged.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.errors import LeakgaugeError
from leakgauge.matching.attempts import AVERAGED
from leakgauge.matching.updates import example_input
from leakgauge.models.structure import has_kinks
from leakgauge.setup.plan import Cell, OnDecoy
from leakgauge.types import Attack, Observation, TamperingServer

_LOOK, _MORE = 2, 6  # steps that are timed: the difference leaves out what happens once
_SLOW = 5.0  # seconds for the first of these, from which the second is not worth its time
_HALVING = 0.6  # what searches side by side cost beside as many to the end, the worse half being given up early
_FEWEST = 60  # steps below which a search shows nothing; the time budget stops it even so
_SHORTEST = 0.5  # seconds of any search
_SUITED = 3.0  # how much more time a search gets that suits the network
_INFORMED = 2.0  # and one that knows the defense


class Budget:
    """A clock for each configuration, and what one evaluation of all trials costs; asked before each search."""

    def __init__(self, seconds: float, seconds_per_evaluation: float, smooth: bool, trials: int = 1) -> None:
        self._seconds = seconds
        self._evaluation = seconds_per_evaluation
        self._smooth = smooth
        self._trials = trials
        self._until: dict[str, float] = {}  # configuration -> when its time is up

    def allotted(self, cell: Cell, later: Sequence[Cell]) -> Cell:
        """The cell with its share of its configuration's time; as it is where its attack does not search."""
        until = self._until.setdefault(cell.defense, time.monotonic() + self._seconds)
        if not searches(cell.attack):
            return cell
        mine = self._weight(cell)
        others = sum(self._weight(c) for c in later if c.defense == cell.defense)
        allowed = max(_SHORTEST, (until - time.monotonic()) * mine / (mine + others))
        if isinstance(cell.attack, OnDecoy):
            inner = dataclasses.replace(cell.attack, attack=self.fitted(cell.attack.attack, allowed))
            return dataclasses.replace(cell, attack=inner)
        return dataclasses.replace(cell, attack=self.fitted(cell.attack, allowed))

    def _weight(self, cell: Cell) -> float:
        """L-BFGS goes far on a smooth network and gets stuck on one with kinks, where first-order rules go on.

        Who knows the defense is the stronger attacker, and decides the verdict.
        """
        if not searches(cell.attack):
            return 0.0
        curved = getattr(_inner(cell.attack), "optimizer", "") == "lbfgs"
        return (_SUITED if curved == self._smooth else 1.0) * (_INFORMED if cell.adaptive else 1.0)

    def fitted(self, attack: Attack, seconds: float) -> Attack:
        """With a time budget, and no more steps than fit into it where their number shapes the search."""
        if isinstance(attack, TamperingServer) and attack.asks_again:  # it meets one victim after another
            seconds /= self._trials
        budget = float(f"{seconds:.3g}")
        changed = attack.with_fields(time_budget=budget) or attack
        steps, rule = getattr(attack, "steps", None), getattr(attack, "optimizer", "adam")
        if steps is None or rule == "lbfgs" or not self._evaluation:
            return changed
        rows: float = attack.rows_per_trial
        if getattr(attack, "schedule", None) == AVERAGED:  # one attempt after another, each to its end
            rows = getattr(attack, "restarts", 1)
        elif rows > 1 and not isinstance(attack, Portfolio):  # whose members all run to their end
            rows *= _HALVING
        fit = int(seconds / (self._evaluation * rows))
        return changed.with_fields(steps=min(steps, max(_FEWEST, fit))) or changed


def searches(attack: Attack) -> bool:
    """Does it take as much time as it is given?"""
    return hasattr(_inner(attack), "time_budget")


def seconds_per_evaluation(
    observation: Observation, seeds: Sequence[int], clock: Callable[[], float] = time.perf_counter
) -> float:
    """What one step of gradient matching on all these trials takes; 0 where it cannot be told."""

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


def _inner(attack: Attack) -> Attack:
    return attack.attack if isinstance(attack, OnDecoy) else attack
