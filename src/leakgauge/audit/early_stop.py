"""When is a configuration settled? Once every record of it was recovered, later and costlier attacks show nothing new.

The attacks together are one attacker, as in the verdict's lower side. A score that is not credible settles nothing. The
truth decides only what the audit still spends time on: no attack sees it, and no result is picked by it. Without the
truth only proofs count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from leakgauge.metrics.criterion import criterion_of
from leakgauge.setup.setup import Setup
from leakgauge.types import Finding
from leakgauge.verdict.credible import is_recovered, weighed
from leakgauge.verdict.roles import attacks_in, floors_in
from leakgauge.verdict.summary import all_proven


def why_stopped(setup: Setup, findings: Sequence[Finding], recovered: Mapping[str, Tensor], defense: str) -> str:
    """What settled this configuration, in words; empty if something is left to attack."""
    if not setup.scored:
        mine = [f for f in findings if f.defense == defense]
        every = all_proven(mine, setup.victims.trials, setup.victims.samples)
        return "settled: every record carries a proof of its own" if every else ""
    names = stopped_by(setup, findings, recovered, defense)
    return f"settled by {' and '.join(names)}: every record was recovered" if names else ""


def stopped_by(
    setup: Setup, findings: Sequence[Finding], recovered: Mapping[str, Tensor], defense: str
) -> tuple[str, ...]:
    """The attacks that together recovered every record of this configuration; none if some are left."""
    mine, rule = [f for f in attacks_in(findings) if f.defense == defense], criterion_of(setup.data)
    wanted = {(trial, record) for trial in range(setup.scenario.trials) for record in range(setup.scenario.batch_size)}
    if not wanted <= {(f.trial, i) for f in mine for i, record in enumerate(f.records) if rule.met(record)}:
        return ()
    weighed_ones, _ = weighed(setup, mine, recovered, floors_in(findings))
    names: list[str] = []
    for f in weighed_ones:
        found = {(f.trial, i) for i in range(len(f.records)) if is_recovered(setup.data, f, i)} & wanted
        if found:
            wanted -= found
            name = f.attack + (" (knowing the defense)" if f.adaptive else "")
            names += [name] if name not in names else []
    return () if wanted else tuple(names)
