"""When is a configuration settled? Once every record of it was recovered, later and costlier attacks show nothing new.

The attacks together are one attacker, as in the verdict's lower side. An attack that does not beat its control settles
nothing. The truth decides only what the audit still spends time on: no attack sees it, and no result is picked by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from leakgauge import catalog
from leakgauge.conclusion import beats_control
from leakgauge.evidence import controlled
from leakgauge.stage import Stage
from leakgauge.types import Finding
from leakgauge.verdict import is_recovered, summarise


def settled_by(
    stage: Stage, findings: Sequence[Finding], recovered: Mapping[str, Tensor], defense: str
) -> tuple[str, ...]:
    """The attacks that together recovered every record of this configuration; none if some are left."""
    floors = {name for name, attack in catalog.find("attacks").items() if attack.baseline}
    mine = [f for f in findings if f.defense == defense and f.attack not in floors and not f.control]
    wanted = {(trial, record) for trial in range(stage.scenario.trials) for record in range(stage.scenario.batch_size)}
    if not wanted <= {place for f in mine for place in _recovered(stage, f, findings)}:
        return ()
    rows = summarise([*(f for f in findings if f.attack in floors), *mine], stage.data)
    rows, _ = controlled(stage, rows, mine, recovered)
    trusted = {(r.attack, r.adaptive) for r in rows if beats_control(r)}
    names: list[str] = []
    for f in mine:
        found = {place for place in _recovered(stage, f, findings) if place in wanted}
        if (f.attack, f.adaptive) in trusted and found:
            wanted -= found
            name = f.attack + (" (knowing the defence)" if f.adaptive else "")
            names += [name] if name not in names else []
    return () if wanted else tuple(names)


def _recovered(stage: Stage, finding: Finding, findings: Sequence[Finding]) -> set[tuple[int, int]]:
    floor = next((f.records for f in findings if f.attack == "mean-image" and f.trial == finding.trial), ())
    return {
        (finding.trial, i)
        for i, record in enumerate(finding.records)
        if is_recovered(stage.data, record, floor[i] if i < len(floor) else {})
    }
