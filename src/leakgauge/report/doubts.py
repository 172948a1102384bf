"""What casts doubt on a result, for somebody who did not build the system: each doubt with what it is about."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.report.cells import by_defense, flags
from leakgauge.types import UNDEFENDED, AuditReport, Flag
from leakgauge.verdict.flags import NO_BETTER_THAN_CONTROL
from leakgauge.verdict.summary import in_a_row

_OVERSTATED = "so the risk may be overstated"
_PLAIN: Mapping[str, str] = {
    "labels-given": f"the attacker was handed the true labels, which a real one does not have, {_OVERSTATED}",
    "batchnorm-given": "the attacker was handed statistics of the private records, which a real one does not have, "
    + _OVERSTATED,
    "defense-without-effect": "a defense was declared, but the update is the same without it: it protected nothing",
    "objective-did-not-fall": "the attack failed at its own task, which is no credit to the defense: another one may "
    "get further",
    "never-moved": "the attack stopped where it began, which is no credit to the defense: another one may get further",
    "diverged": "the attack broke down, which is no credit to the defense: what it did not finish counts as not "
    "rebuilt",
    "no-better-than-mean": "what came out is no nearer to the true records than an average of public ones: by itself "
    "it shows nothing of them",
    "no-better-than-decoy": "the same attack does as well with the update of somebody else: what it shows was made up "
    "and not read",
    NO_BETTER_THAN_CONTROL: "what came out is no nearer to the true records than to other ones of the same kind: "
    "nothing of them was seen in it, beyond the label at most; traces too weak for so few records may be there",
    "bound-exceeded": "more was rebuilt than the guarantee allows: something that was declared is not so, and the "
    "guarantee must not be relied on",
    "generator-saw-victims": "the attack had been trained on records that are attacked here: it may remember them "
    f"instead of reading them, {_OVERSTATED}",
    "generator-data-unknown": "nobody can say whether the attack had been trained on records that are attacked here: "
    "if it had, the risk is overstated",
    "rank-deficient": "the equations that the attack solves leave the record open: a poor result is its limit and no "
    "protection",
    "time-budget-spent": "the attack was stopped when its time was up: more time may rebuild more",
    "batch-only-alike": "the attacks did not know in which order the client used its records, or what it left out: "
    "where nothing was rebuilt, this may be why",
    "batch-unproven": "whether what was shared came from the records at hand could not be told: where nothing was "
    "rebuilt, this clears nothing",
    "explained-by-others": "an attack found other records that explain what was shared: the records at hand may not be "
    "those behind it, so where nothing was rebuilt, this clears nothing",
    "no-ground-truth": "the true records were not at hand, so nothing could be compared with them",
}


def doubts(report: AuditReport) -> list[str]:
    """Each doubt as a sentence that begins with the configurations, and the attacks, that it is about."""
    return [f"{about(report, flag.id)}: {plain(flag)}." for flag in flags(report)]


def plain(flag: Flag) -> str:
    """Without advice, which is for those who run the audit; a flag that is not known here keeps its reason."""
    return _PLAIN.get(flag.id, flag.reason.rstrip("."))


def about(report: AuditReport, flag: str) -> str:
    """ "With name:field=1 (every attack) and with another (idlg not knowing of it)"; the whole audit if no row is."""
    places = []
    for defense, group in by_defense(report).items():
        ran = [cell for cell in group if cell.row.error is None and not cell.control]
        raised = [cell for cell in ran if flag in cell.row.flags]
        if not raised:
            continue
        names = [
            cell.row.attack + ("" if defense == UNDEFENDED else f" {'' if cell.row.adaptive else 'not '}knowing of it")
            for cell in raised
        ]
        where = "without any defense" if defense == UNDEFENDED else f"with {defense}"
        claiming = [cell for cell in ran if cell.claims_records]
        if len(raised) > 1 and raised in (ran, claiming):
            names = ["every attack" if raised == ran else "every attack on records"]
        places.append(f"{where} ({', '.join(names)})")
    said = in_a_row(places) or "the whole audit"
    return said[0].upper() + said[1:]
