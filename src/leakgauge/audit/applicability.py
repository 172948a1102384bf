"""Which attacks can work on this model and update at all: asked before any time is spent, and told where not."""

from __future__ import annotations

from collections.abc import Sequence

from leakgauge.client.summed import in_sum
from leakgauge.errors import BadInput, HiddenFact, NotApplicable
from leakgauge.matching.labels import labels_can_be_read
from leakgauge.recording.triage import first_observation
from leakgauge.setup.plan import Cell, OnDecoy, parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.setup.suites import forbidden_servers, in_suite, only_unlabelled
from leakgauge.types import (
    NOT_APPLICABLE,
    UNDEFENDED,
    Attack,
    Batch,
    Fact,
    Observation,
    Scenario,
    Skipped,
    TamperingServer,
)

EVERYWHERE = "all"
_BROKEN = "its equations hold for an update that no defense has changed"


def refuse_unfit(setup: Setup) -> None:
    """A defense that cannot be applied here is bad input, unless others that were named can: its rows then say why."""
    if setup.victims.shared is not None:  # whatever was applied was applied
        return
    reasons = {chain: _why_unfit(setup, chain) for chain in setup.scenario.defenses if chain != UNDEFENDED}
    if reasons and all(reasons.values()):
        chain, why = next(iter(reasons.items()))
        raise BadInput("defenses", allowed="such as can be applied to this model and data", got=repr(chain), do=why)


def _why_unfit(setup: Setup, chain: str) -> str:
    """What the first client, with two samples at most, says when it is to share under these defenses."""
    defenses = parse_chain(chain)
    held = setup.behind(defenses)
    if in_sum(defenses) == 1:
        held = Batch(held.inputs[:, :2], held.labels[:, :2])
    try:
        setup.update(defenses, setup.model, held, [0])
    except NotApplicable as error:
        return str(error)
    return ""


def sort_out(setup: Setup, cells: Sequence[Cell]) -> tuple[list[Cell], list[Skipped]]:
    """The cells to run, and the others with the reason. Attacks that were named all run, as far as anything can."""
    unfounded: list[Skipped] = []
    if not setup.scored:
        cells, unfounded = _without_controls(setup.scenario, cells)
    possible, skipped = (sorted_out if in_suite(setup.scenario) else without_empty_floors)(setup, cells)
    return possible, [*unfounded, *skipped]


def _without_controls(scenario: Scenario, cells: Sequence[Cell]) -> tuple[list[Cell], list[Skipped]]:
    """For a blind audit: floors and controls are left out, and of a suite the attacks that only a control can judge."""
    named = {spec.partition(":")[0] for spec in scenario.attacks}
    cells = [c for c in cells if not isinstance(c.attack, OnDecoy) and (not c.attack.baseline or c.label in named)]
    drawing = {} if named else {c.attack: c.label for c in cells if c.attack.decoy}
    why = f"{NOT_APPLICABLE}what it draws cannot be told from what it reads without samples to compare with"
    skipped = [Skipped(label, EVERYWHERE, False, why) for label in dict.fromkeys(drawing.values())]
    return [c for c in cells if c.attack not in drawing], skipped


def sorted_out(setup: Setup, cells: Sequence[Cell]) -> tuple[list[Cell], list[Skipped]]:
    """The cells whose attack can work on this model and update, and the others with the reason."""
    seen = first_observation(setup)
    cells = [c for c in cells if not spared(c.attack, setup.scenario, seen)]
    reasons = {c.attack: _no_floor(setup, c.attack) or why_not(_inner(c.attack), seen) for c in cells}
    fits = [c for c in cells if not reasons[c.attack]]
    possible = [c for c in fits if c.defense == UNDEFENDED or not _inner(c.attack).undefended_only]
    broken = [c for c in fits if c not in possible]
    working = {c.label for c in fits}
    skipped = {
        c.label: Skipped(c.label, EVERYWHERE, False, NOT_APPLICABLE + reasons[c.attack])
        for c in cells
        if c.label not in working and not isinstance(c.attack, OnDecoy)
    }
    why = f"{NOT_APPLICABLE}{setup.threat_model.name!r} may not change the model"
    if setup.threat_model.may_change != "nothing":
        why = f"{NOT_APPLICABLE}{setup.threat_model.name!r} may change no more than its {setup.threat_model.may_change}"
    servers = [Skipped(name, EVERYWHERE, False, why) for name in forbidden_servers(setup.scenario)]
    defended = [Skipped(c.label, c.defense, c.adaptive, NOT_APPLICABLE + _BROKEN) for c in broken]
    return possible, [*skipped.values(), *defended, *servers]


def without_empty_floors(setup: Setup, cells: Sequence[Cell]) -> tuple[list[Cell], list[Skipped]]:
    """Attacks that were named all run; a floor that comes by itself does so only where it has something to stand on."""
    why = {c.label: _no_floor(setup, c.attack) for c in cells}
    skipped = {
        c.label: Skipped(c.label, EVERYWHERE, False, NOT_APPLICABLE + why[c.label]) for c in cells if why[c.label]
    }
    return [c for c in cells if not why[c.label]], list(skipped.values())


def spared(attack: Attack, scenario: Scenario, observation: Observation) -> bool:
    """Does the suite hold it back for updates whose labels cannot be read, and this is none?"""
    return _inner(attack).name in only_unlabelled(scenario) and labels_can_be_read(observation)


def _no_floor(setup: Setup, attack: Attack) -> str:
    """Why a floor has nothing to stand on; empty for everything else."""
    without = attack.baseline and setup.public is None and Fact.PUBLIC_DATA in attack.needs
    return "there are no public samples to take a mean of" if without else ""


def why_not(attack: Attack, observation: Observation) -> str:
    """Why the attack cannot work here; empty if it may. Floors and servers answer for themselves when they run."""
    if attack.baseline or isinstance(attack, TamperingServer):
        return ""
    try:
        missing = sorted(fact.value for fact in attack.needs if not observation.knows(fact))
        if missing:
            return f"it needs {', '.join(missing)}, which is not known here"
        attack.check(observation)
    except (NotApplicable, HiddenFact) as error:
        return str(error)
    return ""


def _inner(attack: Attack) -> Attack:
    return attack.attack if isinstance(attack, OnDecoy) else attack
