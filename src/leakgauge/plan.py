"""Which attacks meet which configurations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leakgauge import catalog
from leakgauge.types import UNDEFENDED, Attack, Defense, Scenario, cell_name

# The attacks of an audit that names none. Looser than the attacks' own defaults: enough to recognise a picture.
DEFAULT_SUITE = ("linear", "idlg:steps=80,restarts=1,threshold=0.001", "dlg:steps=80,restarts=1,threshold=0.001")


@dataclass(frozen=True)
class Cell:
    """One attack against one configuration."""

    attack: Attack
    defense: str
    adaptive: bool

    @property
    def name(self) -> str:
        return cell_name(self.attack.name, self.defense, self.adaptive)


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
