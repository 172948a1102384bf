"""Which attacks can work on this model and update at all: asked before any time is spent."""

from __future__ import annotations

from collections.abc import Sequence

from leakgauge.client.summed import in_sum
from leakgauge.errors import BadInput, HiddenFact, NotApplicable
from leakgauge.matching.labels import labels_can_be_read
from leakgauge.recording.triage import first_observation
from leakgauge.setup.plan import Cell, OnDecoy, parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.setup.suites import forbidden_servers, in_suite, only_unlabelled
from leakgauge.types import NOT_APPLICABLE, UNDEFENDED, Attack, Batch, Fact, Observation, Skipped, TamperingServer


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
        cells, unfounded = _without_controls(setup, cells)
    if in_suite(setup.scenario):
        possible, skipped = sorted_out(setup, cells)
    else:  # a floor that comes by itself runs only where it has samples
        why = {c.label: _no_floor(setup, c.attack) for c in cells}
        possible = [c for c in cells if not why[c.label]]
        skipped = [_skipped(label, reason) for label, reason in why.items() if reason]
    return possible, [*unfounded, *skipped]


def _skipped(label: str, why: str, defense: str = "all", adaptive: bool = False) -> Skipped:
    return Skipped(label, defense, adaptive, NOT_APPLICABLE + why)


def _without_controls(setup: Setup, cells: Sequence[Cell]) -> tuple[list[Cell], list[Skipped]]:
    """For a blind audit: floors and controls are left out, and of a suite the attacks that only a control can judge."""
    named = {spec.partition(":")[0] for spec in setup.scenario.attacks}
    cells = [c for c in cells if not isinstance(c.attack, OnDecoy) and (not c.attack.baseline or c.label in named)]
    drawing = {} if named else {c.attack: c.label for c in cells if c.attack.decoy}
    why = "without samples to compare with, what it draws looks like what it reads"
    skipped = [_skipped(label, why) for label in dict.fromkeys(drawing.values())]
    return [c for c in cells if c.attack not in drawing], skipped


def sorted_out(setup: Setup, cells: Sequence[Cell]) -> tuple[list[Cell], list[Skipped]]:
    """The cells of a suite whose attack can work on this model and update, and the others with the reason."""
    seen = first_observation(setup)
    unlabelled = only_unlabelled(setup.scenario)
    cells = [c for c in cells if inner(c.attack).name not in unlabelled or not labels_can_be_read(seen)]
    reasons = {c.attack: _no_floor(setup, c.attack) or why_not(inner(c.attack), seen) for c in cells}
    fits = [c for c in cells if not reasons[c.attack]]
    possible = [c for c in fits if c.defense == UNDEFENDED or not inner(c.attack).undefended_only]
    working = {c.label for c in fits}
    skipped = {
        c.label: _skipped(c.label, reasons[c.attack])
        for c in cells
        if c.label not in working and not isinstance(c.attack, OnDecoy)
    }
    broken = "its equations hold for an update that no defense has changed"
    defended = [_skipped(c.label, broken, c.defense, c.adaptive) for c in fits if c not in possible]
    may = setup.threat_model.may_change
    limit = "may not change the model" if may == "nothing" else f"may change no more than its {may}"
    servers = [_skipped(n, f"{setup.threat_model.name!r} {limit}") for n in forbidden_servers(setup.scenario)]
    return possible, [*skipped.values(), *defended, *servers]


def _no_floor(setup: Setup, attack: Attack) -> str:
    """Why a floor has no samples to stand on; empty for everything else."""
    without = attack.baseline and setup.public is None and Fact.PUBLIC_DATA in attack.needs
    return "there are no public samples to take a mean of" if without else ""


def why_not(attack: Attack, observation: Observation) -> str:
    """Why the attack cannot work here; empty if it may. Floors and servers answer for themselves when they run."""
    if attack.baseline or isinstance(attack, TamperingServer):
        return ""
    missing = sorted(fact.value for fact in attack.needs if not observation.knows(fact))
    if missing:
        return f"it needs {', '.join(missing)}, which is not known here"
    try:
        attack.check_loss(observation)
        attack.check(observation)
        if observation.fact(Fact.LOCAL_TRAINING).adaptive:  # what reads sizes of gradients finds that there are none
            attack.problem(observation, tuple(range(observation.trials)))
    except (NotApplicable, HiddenFact) as error:
        return str(error)
    return ""


def inner(attack: Attack) -> Attack:
    """The attack itself, also where it runs on a decoy."""
    return attack.attack if isinstance(attack, OnDecoy) else attack
