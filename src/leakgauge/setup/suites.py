"""The attacks of an audit that names none: quick, standard and full, from what costs nothing to what costs most.

Labels first, then what solves equations, then searches, batch attacks, and generators with their control; an attacker
who knows a declared defence comes by itself (`plan`), tampering servers where the threat model lets them. A suite has a
number of seconds for each configuration, not of steps: `pacing` deals them out. So another defence in the comparison
does not make the attacks on the first one weaker. Each entry's steps are the most that are worth taking.
"""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge import catalog
from leakgauge.types import Scenario, TamperingServer, threat_model

ALLOWED = {"nothing": (), "parameters": ("parameters",), "architecture": ("parameters", "architecture")}
UNCHANGED_ONLY = frozenset({"rgap"})  # solve equations that a defence breaks, and take long to find that out
_ANALYTIC = ("labels", "linear", "rank-one", "patch-embedding", "peeling", "rgap")
_UNLABELLED = ("dlg:restarts=4,schedule=halving",)


@dataclass(frozen=True)
class Suite:
    """What is run, in this order, and about how long one configuration may take on the machine at hand."""

    seconds: float
    attacks: tuple[str, ...]
    servers: tuple[str, ...]  # those that the threat model does not allow are left out
    unlabelled: tuple[str, ...] = ()  # played only where no rule can read the labels: they search them


SUITES = {
    "quick": Suite(
        60,
        (*_ANALYTIC, "idlg:steps=65,restarts=1,threshold=1e-06", "portfolio:steps=1200"),
        ("imprint", "trap-weights", "mkor"),
        _UNLABELLED,
    ),
    "standard": Suite(
        600,
        (
            *_ANALYTIC,
            "cpl:steps=150,restarts=4,schedule=halving",
            "portfolio:steps=4800,restarts=2",
            "gradinversion:steps=5000,restarts=2",
            "grnn:steps=4000,scale=mixed,variation=squared",
            "ggl",
        ),
        ("imprint", "trap-weights", "mkor", "class-fishing", "feature-fishing"),
        _UNLABELLED,
    ),
    "full": Suite(
        7200,
        (
            *_ANALYTIC,
            "cpl:restarts=8,schedule=halving",
            "dlg:restarts=4,schedule=halving",
            "portfolio:steps=24000,members=5,restarts=4",
            "gradinversion",
            "grnn:restarts=2,scale=mixed,variation=squared",
            "ggl:restarts=4",
            "gias",
        ),
        ("imprint", "trap-weights", "mkor", "class-fishing", "feature-fishing"),
    ),
}


def in_suite(scenario: Scenario) -> bool:
    """Does the audit choose its own attacks? Then it may also leave some out."""
    return not scenario.attacks


def attacks_of(scenario: Scenario) -> tuple[str, ...]:
    """What the scenario names, or its suite with the servers that its threat model allows."""
    if scenario.attacks:
        return scenario.attacks
    suite = SUITES[scenario.suite]
    return (*suite.attacks, *suite.unlabelled, *(name for name in suite.servers if _allowed(name, scenario)))


def only_unlabelled(scenario: Scenario) -> frozenset[str]:
    """Names of attacks that this audit plays only where no rule can read the labels."""
    specs = () if scenario.attacks else SUITES[scenario.suite].unlabelled
    return frozenset(catalog.build("attacks", spec).name for spec in specs)


def forbidden_servers(scenario: Scenario) -> tuple[str, ...]:
    """Servers of the suite that this threat model does not allow."""
    return tuple(name for name in SUITES[scenario.suite].servers if not _allowed(name, scenario))


def _allowed(name: str, scenario: Scenario) -> bool:
    server: type[TamperingServer] = catalog.get("attacks", name)
    return server.changes in ALLOWED[threat_model(scenario.threat_model).may_change]
