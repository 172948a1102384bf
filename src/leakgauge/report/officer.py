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
from leakgauge.report.subject import GIVEN, SIMULATED, in_python, kind_of_update, title_of, told, was
from leakgauge.types import UNDEFENDED, AuditReport, ConfigurationVerdict, Flag, Proven, threat_model
from leakgauge.verdict.flags import NO_BETTER_THAN_CONTROL
from leakgauge.verdict.roles import attack_rows
from leakgauge.verdict.summary import in_a_row, state_of, under_test

_TONES = {"leaks": "bad", "protected": "good", "unknown": "warn"}
_ANSWERS = {  # each begins with the configurations that it is about
    "leaks": "private records could be rebuilt from what is shared: whoever reads it may see them.",
    "cannot tell": "some attempts resemble the records, but there are too few other records to compare with: it cannot "
    "be told whether any was rebuilt.",
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
    "batch-unproven": "whether what was shared came from the records at hand could not be told: where nothing was "
    "rebuilt, this clears nothing",
    "explained-by-others": "an attack found other records that explain what was shared: the records at hand may not be "
    "those behind it, so where nothing was rebuilt, this clears nothing",
    "no-ground-truth": "the true records were not at hand, so nothing could be compared with them",
}


def to_officer(report: AuditReport) -> str:
    """The same report gives the same bytes."""
    state, verdict = overall(report), report.verdict
    several = len(verdict.configurations) > 1
    # Green is for what is guaranteed, and not where labels were read all the same.
    labels = state == "protected" and any(c.labels for c in under_test(verdict))
    page = {
        "title": title_of(report),
        "tone": "warn" if labels else _TONES[state],
        "answer": answer(report),
        "tried": tried(report),
        "not_run": plain_lines(report),
        "bar": bar(report) if report.scored else "",
        "configurations": [(name_of(c, several), _defense(c.defense), c) for c in verdict.configurations],
        "drawn": kind_of_update(report.scenario) == SIMULATED,  # so that their share says something of all others
        "most_exposed": most_exposed_words(report),
        "knew": told(report),
        "scenario": report.scenario,
        "unchanged": threat_model(report.scenario.threat_model).may_change == "nothing",
        "state": _state(report),
        "guaranteed": any(c.upper.guaranteed for c in verdict.configurations),
        "held": any(not c.leaks for c in verdict.configurations),
        "doubts": doubts(report),
        "next": next_steps(report, state),
        "where": report.environment,
        "gate": gate_words(report),
        "interrupted": report.interrupted,
    }
    words = {"percent": percent, "counted": counted, "was": was, "at_most": at_most}
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
    if report.verdict.proven is not None:
        return _unscored(report.verdict.proven)
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


def _unscored(proven: Proven) -> list[str]:
    """Without the true records: what is certain all the same."""
    records = counted("private record", proven.of_records)
    lines = ["Not scored: the true records were not at hand, so nothing could be compared with them."]
    if proven.records:
        what = f"{proven.records} of {records}"
        lines.append(f"Even so {what} {was(proven.records)} rebuilt with a proof that it is right: the updates leak.")
    if proven.labels:
        lines.append(f"What was shared proves {proven.labels} of {counted('label', proven.of_labels)}.")
    return lines if proven.records else [*lines, "That no record was proven clears nothing."]


def _kind(configuration: ConfigurationVerdict) -> str:
    """Which of the answers holds for a configuration."""
    state = state_of(configuration)
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
    told = [known[name].summary for name in names if name in known]
    return [f"This defense: {', then '.join(told)}."] if len(told) == len(names) else []


def bar(report: AuditReport) -> str:
    """When a record counts as rebuilt, in one sentence."""
    rule = criterion(report)
    limit = f"{rule.threshold:g}"
    meant = {
        "ssim": f"a similarity, called SSIM, of at least {limit}, where 1 is identical",
        "mse": f"values off by {rule.threshold**0.5:.0%} of their range at most, as a root mean square",
    }
    said = meant.get(rule.metric, f"{rule.metric} of {'at least' if rule.higher_is_better else 'at most'} {limit}")
    return (
        f"A record counts as rebuilt if what an attack made of it comes this near to the true one ({said}) and nearer "
        "than blind guesses, or other records of the same kind, would explain."
    )


def most_exposed_words(report: AuditReport) -> str:
    """The record that came out best; empty if none was rebuilt."""
    found, rule = most_exposed_of(report), criterion(report)
    if found is None or not found.credible or not found.cell.row.success_rate.recovered:
        return ""
    row = found.cell.row
    score = number(rule.metric, row.worst.get(rule.metric))
    scale = {"ssim": f"a similarity of {score}, where 1 is identical", "mse": f"a mean squared error of {score}"}
    where = "without any defense" if row.defense == UNDEFENDED else f"with {row.defense}"
    return (
        f"The record that came out best has {scale.get(rule.metric, f'{rule.metric} {score}')}: it was rebuilt by the "
        f"attack {row.attack}, {where}. A person whose record is rebuilt is not helped by an average."
    )


def gate_words(report: AuditReport) -> str:
    """The limit that was set beforehand, and whether it was kept; empty without one."""
    gate = report.verdict.gate
    if gate is None:
        return ""
    name = {"ssim": "an SSIM", "psnr": "a PSNR", "mse": "a mean squared error"}.get(gate.metric, gate.metric)
    most = "no attacked record"
    if gate.confidence is not None and gate.share is not None:
        most = f"at most {percent(gate.share)} of all records, with {percent(gate.confidence)} confidence,"
    limit = f"The limit that was set, {most} to reach {name} of {gate.threshold:g}, was"
    if gate.passed:
        return f"{limit} kept."
    if not gate.reached:
        return f"{limit} not shown to be kept: too few records were attacked, or too few could be compared."
    return f"{limit} exceeded: {gate.reached} of {counted('record', gate.records)} reached it."


def tried(report: AuditReport) -> list[str]:
    """What was attacked, by whom and how often."""
    s = report.scenario
    attacks = list(dict.fromkeys(r.attack for r in attack_rows(report.summary, report.findings)))
    fitted = {r.attack for r in report.summary if r.error is None}
    lines = [
        f"In federated learning a client trains on its own records and sends an update to a server. {_updates(report)}",
        f"The attacker: {threat_model(s.threat_model).summary}. It sees the model and the update.",
        f"Attacks that were tried: {', '.join(a for a in attacks if a in fitted) or 'none'}.",
    ]
    if missing := [a for a in attacks if a not in fitted]:
        them = "it" if len(missing) == 1 else "them"
        lines.append(f"{', '.join(missing)} could not run here; nothing is known from {them}.")
    if any(r.adaptive for r in report.summary):
        lines.append("Where a defense was in place, attackers who know of it were played as well as those who do not.")
    return lines


def _updates(report: AuditReport) -> str:
    """Whose updates were attacked, in one sentence: computed for this audit, or given."""
    s, kind = report.scenario, kind_of_update(report.scenario)
    each = ", each" if s.trials > 1 else ""
    records = "one record" if s.batch_size == 1 else f"{s.batch_size} records"
    model = "the model that was given" if in_python(s) else f"the model {s.model}"
    if kind == SIMULATED:
        computed = f"{counted('update', s.trials)} {was(s.trials)} computed{each} from {records} of {s.data}"
        return f"{computed}, with {model}, and attacked."
    whose = "The update of one client" if s.trials == 1 else f"The updates of {s.trials} clients"
    how = "given" if kind == GIVEN else f"recorded in round {s.round}"
    return f"{whose}{each or ','} from {records}, {was(s.trials)} {how} and attacked, with {model}."


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
        return ["Ask for an audit with the true records at hand: only then can it be said what was rebuilt."]
    counts = [c.lower.records for c in tested]
    enough = needed(_ENOUGH)
    if counts and min(counts) < enough:
        lines.append(
            f"Ask for at least {enough} attacked records: fewer cannot show that less than {percent(_ENOUGH)} leak."
        )
    if state == "unknown":
        lines.append("Ask for a defense with an accounted guarantee, or for stronger and longer attacks.")
    return lines


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
