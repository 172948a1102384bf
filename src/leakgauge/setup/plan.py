"""Which attacks run against which configurations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.setup.suites import attacks_of
from leakgauge.types import UNDEFENDED, Attack, Defense, Fact, Known, Scenario, cell_name

_WAY = "@"
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
    known: tuple[Known, ...] = ()  # what an informed attacker knows, in the order in which the defenses act

    @property
    def key(self) -> dict[str, object]:
        """What its result depends on, besides the setup and what an attack's fields say."""
        known = [[getattr(k.defense, "spec", ""), k.way] for k in self.known]
        return {"attack": self.attack.spec, "defense": self.defense, "adaptive": self.adaptive, "known": known}

    @property
    def name(self) -> str:
        return cell_name(self.label, self.defense, self.adaptive)


def plan(scenario: Scenario, undefended: bool = True) -> list[Cell]:
    """The floors first, then per configuration each attack, plain and as one who knows the defense.

    The control of an attack that wants one comes right before it.
    """
    named = [catalog.build("attacks", spec) for spec in attacks_of(scenario)]
    attacks = list(dict.fromkeys(a for a in named if not a.baseline))
    check_assumed(scenario, attacks)
    names = Counter(a.name for a in attacks)
    cells = [Cell(a(), UNDEFENDED, False, name) for name, a in catalog.find("attacks").items() if a.baseline]
    for configuration in configurations(scenario, undefended):
        defenses = parse_chain(configuration)
        for attack in attacks:
            label = attack.name if names[attack.name] == 1 else attack.spec
            if scenario.variants != "adaptive" or not (defenses or _assumed_of_saved(scenario)):
                cells += _with_control(Cell(attack, configuration, False, label))
            if scenario.variants != "plain":
                for known in knowledge(scenario, attack, defenses):
                    cells += _with_control(Cell(attack, configuration, True, label + way_of(known), known))
    return cells


def _assumed_of_saved(scenario: Scenario) -> bool:
    """Is it a saved update of which a defense is assumed? An informed attacker then needs no declared one."""
    return scenario.update is not None and bool(scenario.assume)


def knowledge(scenario: Scenario, attack: Attack, defenses: Sequence[Defense]) -> tuple[tuple[Known, ...], ...]:
    """What informed attackers know, one entry for each: the chain that they assume, or the true one."""
    return informed_by(attack, *(parse_assumed(scenario.assume) if scenario.assume else (defenses,)))


def _with_control(cell: Cell) -> list[Cell]:
    if not cell.attack.decoy:
        return [cell]
    return [replace(cell, attack=OnDecoy(cell.attack), label=cell.label + ON_A_DECOY), cell]


def configurations(scenario: Scenario, undefended: bool = True) -> tuple[str, ...]:
    """The undefended update for comparison (or because nothing else is there), then each chain under test."""
    chains = tuple(dict.fromkeys(d for d in scenario.defenses if d != UNDEFENDED))
    return (UNDEFENDED, *chains) if undefended or not chains else chains


def parse_chain(configuration: str) -> tuple[Defense, ...]:
    """`first:field=1+second:field=0.1` -> the defenses in the order they act."""
    if configuration == UNDEFENDED:
        return ()
    return tuple(catalog.build("defenses", part) for part in split_chain(configuration))


def split_chain(configuration: str) -> list[str]:
    """The specs of a chain; the plus in a number such as 1e+2 joins nothing."""
    return re.split(r"(?<![0-9][eE])\+|(?<=[0-9][eE])\+(?=[a-z./])", configuration)


def parse_assumed(chain: str) -> tuple[tuple[Defense, ...], tuple[str | None, ...]]:
    """`first:field=0.5@way+second` -> what attackers take for the chain, and the one way to use each."""
    parts = [part.partition(_WAY) for part in split_chain(chain)]
    defenses = tuple(catalog.build("defenses", spec) for spec, _, _ in parts)
    return defenses, tuple(way if sign else None for _, sign, way in parts)


def check_assumed(scenario: Scenario, attacks: Iterable[Attack]) -> None:
    """Refuses a way that none of these attacks has."""
    if not scenario.assume:
        return
    for defense, way in zip(*parse_assumed(scenario.assume), strict=True):
        ways = dict.fromkeys(w for attack in attacks for w in (*defense.ways(attack), *defense.weaker_ways(attack)))
        if way is not None and way not in ways:
            names = ", ".join(repr(w) for w in ways if w)
            raise BadInput(
                f"assume: the way to use {defense.name}",
                allowed=f"one of {names}" if names else "left out: these attacks have no ways with a name",
                got=repr(way),
                do=f"write {defense.name}{f'{_WAY}NAME with one of these' if names else ''}, or leave {_WAY} out",
            )


def informed_by(
    attack: Attack, defenses: Sequence[Defense], only: Sequence[str | None] | None = None
) -> tuple[tuple[Known, ...], ...]:
    """Every way in which an attacker with `attack` can use that it knows the chain; empty if none is of any use.

    A defense of which several ways are known is played in each of them, or in the one that `only` names; an attack
    that has no such way keeps its own, so that one name serves a suite.
    """
    sees_more = any(d.fellows for d in defenses)
    wanted = only or [None] * len(defenses)
    every = product(*(_each_way(attack, d, way) for d, way in zip(defenses, wanted, strict=True)))
    found = (tuple(k for k in each if k is not None) for each in every)
    return tuple(known for known in found if known or sees_more)


def _each_way(attack: Attack, defense: Defense, only: str | None) -> tuple[Known | None, ...]:
    ways = defense.ways(attack)
    if only is not None and only in (*ways, *defense.weaker_ways(attack)):
        ways = (only,)
    return tuple(Known(defense, way) for way in ways) or (None,)


def way_of(known: Iterable[Known]) -> str:
    """What a label says of the ways that have a name: " (behind the lock)"."""
    named = [k.way for k in known if k.way]
    return f" ({', '.join(named)})" if named else ""
