"""A page for a data-protection officer: what was tried, what came out, what is not covered, in plain sentences.

It is written from the results alone and shows no private sample, so it can be passed on where the report cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leakgauge import catalog
from leakgauge.metrics.intervals import at_most, needed
from leakgauge.report.cells import by_defense, criterion, flags, plain_lines
from leakgauge.report.html import rendered
from leakgauge.report.numbers import counted, number, percent
from leakgauge.report.rows import most_exposed_of
from leakgauge.report.subject import facts_given, in_python, kind_of_update, title_of, was
from leakgauge.types import ONE_CLASS, UNDEFENDED, AuditReport, ConfigurationVerdict, Flag, threat_model
from leakgauge.types.triage import INFO
from leakgauge.verdict.flags import NO_BETTER_THAN_CONTROL
from leakgauge.verdict.roles import attack_rows
from leakgauge.verdict.summary import in_a_row, state_of, under_test

_TONES = {"leaks": "bad", "protected": "good", "unknown": "warn"}
_ANSWERS = {  # each begins with the configurations that it is about
    "leaks": "private records could be rebuilt from what is shared: whoever reads it may see them.",
    "cannot tell": "some attempts resemble the records, but there are too few other records to compare with: it is "
    "not clear whether any was rebuilt.",
    "unproven": "no record was rebuilt, but it is not clear whether what was shared is what the audit took it "
    "for: this neither clears nor accuses.",
    "protected": "no record was rebuilt, and the noise that is added carries a mathematical guarantee: if it is "
    "applied as declared, no attacker, however clever, gains much over a blind guess from what was examined.",
    "weak": "none of the attacks that were tried rebuilt a record. A mathematical guarantee holds, but it allows an "
    "attacker much more than a blind guess: whether the records are safe is not known.",
    "unknown": "none of the attacks that were tried rebuilt a record. Nothing guarantees that others would fail as "
    "well: whether the records are safe is not known.",
    "not tested": "no attack could be carried out, so nothing is known: this audit neither clears nor accuses.",
}
_ENOUGH = 0.05  # the share of records that an audit should be able to rule out
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
    "batch-unproven": "whether what was shared came from the given records could not be determined: where nothing was "
    "rebuilt, this clears nothing",
    "explained-by-others": "an attack found other records that explain what was shared: the given records may not be "
    "those behind it, so where nothing was rebuilt, this clears nothing",
    "not-as-claimed": "what was shared does not look as the client's training was described: attacks that rely on the "
    "description fail on it, so where nothing was rebuilt, this clears nothing",
    "no-ground-truth": "the true records were not available, so nothing could be compared with them",
}


def to_officer(report: AuditReport) -> str:
    """The same report gives the same bytes."""
    state, verdict = overall(report), report.verdict
    several = len(verdict.configurations) > 1
    # Green is for what is guaranteed, and not where labels were read all the same.
    labels = state == "protected" and any(c.labels for c in under_test(verdict))
    best, rule = most_exposed_of(report), criterion(report)
    attacks = list(dict.fromkeys(r.attack for r in attack_rows(report.summary, report.findings)))
    fitted = {r.attack for r in report.summary if r.error is None}
    page = {
        "title": title_of(report),
        "tone": "warn" if labels else _TONES[state],
        "proven": verdict.proven,  # only without the true records
        "doubt": verdict.doubt,
        "answer": answer(report),
        "threat": threat_model(report.scenario.threat_model),
        "tried": [a for a in attacks if a in fitted],
        "missing": [a for a in attacks if a not in fitted],
        "adaptive": any(r.adaptive for r in report.summary),
        "kind": kind_of_update(report.scenario),
        "in_python": in_python(report.scenario),
        "not_run": plain_lines(report),
        "scored": report.scored,
        "rule": rule,
        "configurations": [(name_of(c, several), _defense(c.defense), c) for c in verdict.configurations],
        "most_exposed": best.cell.row if best and best.credible and best.cell.row.success_rate.recovered else None,
        "knew": facts_given(report),
        "scenario": report.scenario,
        "state": _state(report),
        "guaranteed": any(c.upper.guaranteed for c in verdict.configurations),
        "held": any(not c.leaks for c in verdict.configurations),
        "doubts": doubts(report),
        "next": next_steps(report, state),
        "where": report.environment,
        "targets": _targets_read(report),
        "gate": verdict.gate,
        "interrupted": report.interrupted,
    }
    words = {"percent": percent, "counted": counted, "was": was, "at_most": at_most, "number": number}
    return rendered("officer.html.j2", page | words)


def overall(report: AuditReport) -> str:
    """`leaks`, `protected` or `unknown`, for the configurations under test."""
    if report.verdict.leaks:
        return "leaks"
    return "protected" if {_kind(c) for c in under_test(report.verdict)} == {"protected"} else "unknown"


def name_of(configuration: ConfigurationVerdict, several: bool) -> str:
    if configuration.defense != UNDEFENDED:
        return f"With {configuration.defense}"
    return "Without any defense, for comparison" if several else "Without any defense"


def answer(report: AuditReport) -> list[str]:
    """What came out, the gravest first; each sentence begins with exactly those configurations that it is about."""
    tested = under_test(report.verdict)
    if not tested:
        return ["Nothing was measured."]
    kinds: dict[str, list[str]] = {}
    for configuration in tested:
        kinds.setdefault(_kind(configuration), []).append(configuration.defense)
    lines = [f"{_with(names)}, {_ANSWERS[kind]}" for kind, names in kinds.items()]
    if read := [c.defense for c in tested if c.labels]:
        lines.append(f"{_with(read)}, labels of records were read.")
    return lines


def _kind(configuration: ConfigurationVerdict) -> str:
    """Which of the answers holds for a configuration."""
    state = state_of(configuration)
    if state == "cannot tell" and configuration.unproven and not configuration.undecided:
        return "unproven"
    if state in ("leaks", "cannot tell", "not tested"):
        return state
    if configuration.standing == "protected":
        return "protected"
    return "weak" if configuration.upper.guaranteed else "unknown"


def _with(names: Sequence[str]) -> str:
    return "Without any defense" if list(names) == [UNDEFENDED] else f"With {in_a_row(names)}"


def _defense(chain: str) -> list[str]:
    """What the defense does, in its own words; nothing for one that cannot be named."""
    if chain == UNDEFENDED:
        return []
    known = catalog.find("defenses")
    names = [part.partition(":")[0] for part in chain.split("+")]
    summaries = [known[name].summary for name in names if name in known]
    return [f"This defense: {', then '.join(summaries)}."] if len(summaries) == len(names) else []


def next_steps(report: AuditReport, state: str) -> list[str]:
    """What to ask for, if anything."""
    tested = under_test(report.verdict)
    lines = []
    if leaking := [c.defense for c in tested if c.leaks]:
        named = "without a defense" if leaking == [UNDEFENDED] else f"{' or '.join(leaking)} as it is"
        lines.append(f"Do not deploy {named}; ask for a defense with an accounted guarantee.")
    if state == "leaks":
        return lines
    if not report.scored:
        return ["Ask for an audit with the true records: only then can it be said what was rebuilt."]
    counts = [c.lower.records for c in tested]
    enough = needed(_ENOUGH)
    if counts and min(counts) < enough:
        lines.append(
            f"Ask for at least {enough} attacked records: fewer cannot show that less than {percent(_ENOUGH)} leak."
        )
    if state == "unknown":
        lines.append("Ask for a defense with an accounted guarantee, or for stronger and longer attacks.")
    return lines


def _targets_read(report: AuditReport) -> str:
    """Of targets that are no single class; what they are is private and not said here."""
    clue = next((c for c in report.triage if c.id == "labels"), None)
    if report.data.target == ONE_CLASS or clue is None:
        return ""
    if clue.severity == INFO:
        return "What records are said to be (their targets) cannot be read off the last layer here."
    return "Something of what records are said to be (their targets) can be read off the last layer without a search."


def _state(report: AuditReport) -> str:
    """Which model was attacked, as a clause."""
    state = str(report.environment.get("model state") or "")
    if not state:
        return "the report has the model that was attacked"
    words = {"weights": "the model had the", "as": "the model was taken", "after": "the model was taken"}
    return f"{words.get(state.partition(' ')[0], 'the model was')} {state}"


def doubts(report: AuditReport) -> list[str]:
    """Each doubt as a sentence that begins with the configurations, and the attacks, that it is about."""
    return [f"{about(report, flag.id)}: {plain(flag)}." for flag in flags(report)]


def plain(flag: Flag) -> str:
    """Without advice, which is for those who run the audit; a flag that is not known here keeps its reason."""
    return _PLAIN.get(flag.id, flag.reason.rstrip("."))


def about(report: AuditReport, flag: str) -> str:
    """ "With gaussian:std=1 (every attack) and with prune (idlg not knowing of it)"; the whole audit if no row is."""
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
