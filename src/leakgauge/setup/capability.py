"""What it gains each attack to know each defense: the table attack x defense, read off the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leakgauge import catalog
from leakgauge.types import Attack, Defense

INFORMED, NO_HELP, NO_RULE = VERDICTS = ("informed", "knowing does not help", "no rule yet")


@dataclass(frozen=True)
class Capability:
    """One attack against one defense, both as they are by default."""

    verdict: str
    ways: tuple[str, ...] = ()  # of an informed attacker; one without a name is the only one


def capability(attack: Attack, defense: Defense) -> Capability:
    """Does `attack` get better by knowing `defense`, and in which ways?"""
    if ways := defense.ways(attack):
        return Capability(INFORMED, ways)
    # A floor ignores the update. Of other attacks, a rule that gives no way says that there is none.
    helpless = attack.baseline or defense.has_rule_for(type(attack))
    return Capability(NO_HELP if helpless else NO_RULE)


def capabilities() -> Mapping[str, Mapping[str, Capability]]:
    """Attack -> defense -> what knowing gains, for everything in the catalog."""
    defenses = {name: thing() for name, thing in catalog.find("defenses").items()}
    attacks = {name: thing() for name, thing in catalog.find("attacks").items()}
    return {a: {d: capability(attack, defense) for d, defense in defenses.items()} for a, attack in attacks.items()}
