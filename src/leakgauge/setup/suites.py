"""The attacks of an audit that names none: quick, standard and full, from what costs nothing to what costs most.

Each attack says in its own file from which suite on it is played, with which fields, and what it costs: a new file
joins the bare audit by that alone. The cheapest comes first: labels, what solves equations, then searches and
generators. An attacker who knows a declared defense comes by itself (`plan`), tampering servers where the threat model
lets them. A suite has a number of seconds for each configuration, not of steps: `leakgauge.audit.budget` allots them.
So another defense in the comparison does not make the attacks on the first one weaker.
"""

from __future__ import annotations

from collections.abc import Iterable

from leakgauge import catalog
from leakgauge.types import SUITE_NAMES, Attack, Scenario, TamperingServer, threat_model

ALLOWED = {"nothing": (), "parameters": ("parameters",), "architecture": ("parameters", "architecture")}
SECONDS = {"quick": 60.0, "standard": 600.0, "full": 7200.0}  # for one configuration on the machine at hand


def in_suite(scenario: Scenario) -> bool:
    """Does the audit choose its own attacks? Then it may also leave some out."""
    return not scenario.attacks


def attacks_of(scenario: Scenario) -> tuple[str, ...]:
    """What the scenario names, or its suite: attacks, those for unread labels, and the servers that are allowed."""
    if scenario.attacks:
        return scenario.attacks
    suite, attacks = scenario.suite, played_in(scenario.suite)
    usual = [a for a in attacks if not issubclass(a, TamperingServer) and suite not in a.unlabelled_in]
    unlabelled = [a for a in attacks if suite in a.unlabelled_in]
    servers = [a for a in attacks if issubclass(a, TamperingServer) and _allowed(a, scenario)]
    return tuple(spec_in(suite, a) for a in (*usual, *unlabelled, *servers))


def played_in(suite: str) -> tuple[type[Attack], ...]:
    """The attacks of a suite, the cheapest first."""
    every: Iterable[type[Attack]] = catalog.find("attacks").values()
    return tuple(sorted((a for a in every if _plays(suite, a)), key=lambda a: (a.cost, a.name)))


def spec_in(suite: str, attack: type[Attack]) -> str:
    """The attack with the fields that it has in this suite."""
    fields = attack.in_suites.get(suite) or ""
    return f"{attack.name}:{fields}" if fields else attack.name


def only_unlabelled(scenario: Scenario) -> frozenset[str]:
    """Names of attacks that this audit plays only where no rule can read the labels."""
    if scenario.attacks:
        return frozenset()
    return frozenset(a.name for a in played_in(scenario.suite) if scenario.suite in a.unlabelled_in)


def forbidden_servers(scenario: Scenario) -> tuple[str, ...]:
    """Servers of the suite that this threat model does not allow."""
    servers = (a for a in played_in(scenario.suite) if issubclass(a, TamperingServer))
    return tuple(server.name for server in servers if not _allowed(server, scenario))


def _plays(suite: str, attack: type[Attack]) -> bool:
    if not attack.tier or attack.in_suites.get(suite, "") is None:
        return False
    return SUITE_NAMES.index(attack.tier) <= SUITE_NAMES.index(suite)


def _allowed(server: type[TamperingServer], scenario: Scenario) -> bool:
    return server.changes in ALLOWED[threat_model(scenario.threat_model).may_change]
