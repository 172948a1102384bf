"""Which attacks meet which configurations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from leakgauge import catalog
from leakgauge.setup.suites import attacks_of
from leakgauge.types import UNDEFENDED, Attack, Defense, Fact, Scenario, cell_name

ON_A_DECOY = " on a decoy"  # how the label of a control ends


@dataclass(frozen=True)
class OnDecoy(Attack):
    """The control of an attack that draws on a prior: the same search on an update of public samples.

    The decoy has the victim's labels and other contents, so what it scores against the victim is what the prior and
    the labels give away by themselves.
    """

    name: ClassVar[str] = "decoy"
    summary: ClassVar[str] = "an attack on an update of public samples with the victims' labels, as a control"
    paper: ClassVar[str] = "control"
    needs: ClassVar[frozenset[Fact]] = frozenset()

    attack: Attack

    @property
    def spec(self) -> str:
        return f"{self.attack.spec}{ON_A_DECOY}"


@dataclass(frozen=True)
class Cell:
    """One attack against one configuration. `label` is the attack's name, or more where one name is not enough."""

    attack: Attack
    defense: str
    adaptive: bool
    label: str

    @property
    def name(self) -> str:
        return cell_name(self.label, self.defense, self.adaptive)


def plan(scenario: Scenario, undefended: bool = True) -> list[Cell]:
    """The floors first, then per configuration each attack, plain and as one who knows the defence.

    The control of an attack that wants one comes right before it.
    """
    named = [catalog.build("attacks", spec) for spec in attacks_of(scenario)]
    attacks = list(dict.fromkeys(a for a in named if not a.baseline))
    names = Counter(a.name for a in attacks)
    cells = [Cell(a(), UNDEFENDED, False, name) for name, a in catalog.find("attacks").items() if a.baseline]
    for configuration in configurations(scenario, undefended):
        defenses = parse_chain(configuration)
        for attack in attacks:
            label = attack.name if names[attack.name] == 1 else attack.spec
            if scenario.variants != "adaptive" or not defenses:
                cells += _with_control(Cell(attack, configuration, False, label))
            if scenario.variants != "plain":
                informed = adaptive_attacks(attack, defenses)
                labels = [label if n == 0 else f"{label} #{n + 1}" for n in range(len(informed))]
                for better, own in zip(informed, labels, strict=True):
                    cells += _with_control(Cell(better, configuration, True, own))
    return cells


def _with_control(cell: Cell) -> list[Cell]:
    if not cell.attack.decoy:
        return [cell]
    return [Cell(OnDecoy(cell.attack), cell.defense, cell.adaptive, cell.label + ON_A_DECOY), cell]


def configurations(scenario: Scenario, undefended: bool = True) -> tuple[str, ...]:
    """The undefended update for comparison (or because nothing else is there), then each chain under test."""
    chains = tuple(dict.fromkeys(d for d in scenario.defenses if d != UNDEFENDED))
    return (UNDEFENDED, *chains) if undefended or not chains else chains


def parse_chain(configuration: str) -> tuple[Defense, ...]:
    """`clip:norm=1+gaussian:std=0.1` -> the defences in the order they act."""
    if configuration == UNDEFENDED:
        return ()
    return tuple(catalog.build("defenses", part) for part in split_chain(configuration))


def split_chain(configuration: str) -> list[str]:
    """The specs of a chain; the plus in a number such as 1e+2 joins nothing."""
    return re.split(r"(?<![0-9][eE])\+|(?<=[0-9][eE])\+(?=[a-z./])", configuration)


def adaptive_attacks(attack: Attack, defenses: Iterable[Defense]) -> tuple[Attack, ...]:
    """The attack as one who knows all defences of the chain; empty if that changes neither it nor what it sees."""
    defenses = tuple(defenses)
    sees_more = any(d.fellows for d in defenses)
    informed: tuple[Attack, ...] = (attack,)
    for defense in defenses:
        informed = tuple(better for known in informed for better in (defense.adaptive(known) or (known,)))
    return tuple(a for a in informed if sees_more or a != attack)
