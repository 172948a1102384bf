"""A page for a data-protection officer: what was tried, what came out, what is not covered, in plain sentences.

It is written from the results alone and shows no private sample, so it can be passed on where the report cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leakgauge.metrics.intervals import at_most, needed
from leakgauge.report import assumptions
from leakgauge.report.cells import BASELINES, flags
from leakgauge.report.html import TEMPLATES
from leakgauge.report.not_run import skipped_lines
from leakgauge.report.numbers import percent
from leakgauge.report.rows import most_exposed
from leakgauge.types import UNDEFENDED, AuditReport, threat_model

_TONES = {"leaks": "bad", "protected": "good", "unknown": "warn"}
_ANSWERS = {
    "leaks": "Private records could be rebuilt from what the clients share. People are identifiable from it as far as "
    "they are from the records themselves.",
    "protected": "No record was rebuilt, and the noise that is added carries a mathematical guarantee: no attacker, "
    "however clever, gains much over a blind guess from the updates that were examined.",
    "unknown": "None of the attacks that were tried rebuilt a record. Nothing guarantees that others would fail as "
    "well: whether the records are safe is not known.",
}
_SOME = (
    "None of the attacks that were tried rebuilt a record. For some of these a mathematical guarantee holds, for "
    "others it does not: there it is not known whether the records are safe."
)
_WEAK = (
    "None of the attacks that were tried rebuilt a record. A mathematical guarantee holds, but it allows an attacker "
    "much more than a blind guess: whether the records are safe is not known."
)
_UNTESTED = "No attack could be carried out, so nothing is known: this audit neither clears nor accuses."
_ENOUGH = 0.05  # the share of records that an audit should be able to rule out


def to_officer(report: AuditReport) -> str:
    """The same report gives the same bytes."""
    state = overall(report)
    page = {
        "title": f"{report.scenario.model} on {report.scenario.data}",
        "tone": _TONES[state],
        "answer": _answer(report, state),
        "tried": tried(report),
        "not_run": [line[:1].upper() + line[1:] for line in skipped_lines(report)],
        "came_out": [
            (name_of(c, len(report.verdict.configurations) > 1), came_out(c)) for c in report.verdict.configurations
        ],
        "most_exposed": most_exposed(report),
        "helped": "A person whose record is rebuilt is not helped by an average." if state == "leaks" else "",
        "knew": assumptions.told(report),
        "not_covered": not_covered(report),
        "doubts": [(f.reason[:1].upper() + f.reason[1:], f.remedy) for f in flags(report)],
        "next": next_steps(report, state),
        "measured": _measured(report),
        "gate": None if report.verdict.gate is None else report.verdict.gate["sentence"],
        "interrupted": report.interrupted,
    }
    return TEMPLATES.get_template("officer.html.j2").render(page)


def overall(report: AuditReport) -> str:
    """`leaks`, `protected` or `unknown`, for the configurations under test."""
    under_test = [c for c in report.verdict.configurations if c["defense"] != UNDEFENDED]
    states = {c.get("standing", "unknown") for c in under_test or report.verdict.configurations}
    if report.verdict.leaks:
        return "leaks"
    return "protected" if states == {"protected"} else "unknown"


def name_of(configuration: Mapping[str, Any], several: bool) -> str:
    if configuration["defense"] != UNDEFENDED:
        return f"With {configuration['defense']}"
    return "Without any defence, for comparison" if several else "Without any defence"


def _answer(report: AuditReport, state: str) -> str:
    configurations = report.verdict.configurations
    if not configurations:
        return "Nothing was measured."
    tested = [c for c in configurations if c["defense"] != UNDEFENDED]
    about = (
        f"With {' or '.join(c['defense'] for c in tested)}: " if tested and len(configurations) > len(tested) else ""
    )
    answer = about + _words(state, tested or configurations)
    if state != "leaks" and any(c.get("labels") for c in tested or configurations):
        answer += " The labels of records, however, were read."
    return answer


def _words(state: str, tested: Sequence[Mapping[str, Any]]) -> str:
    if not any(c.get("tested", True) for c in tested):
        return _UNTESTED
    if state == "unknown" and any(c.get("standing") == "protected" for c in tested):
        return _SOME
    if state == "unknown" and all((c.get("upper") or {}).get("guaranteed") for c in tested):
        return _WEAK
    return _ANSWERS[state]


def tried(report: AuditReport) -> list[str]:
    """What was attacked, by whom and how often."""
    s = report.scenario
    controls = {f.attack for f in report.findings if f.control}
    attacks = list(dict.fromkeys(r.attack for r in report.summary if r.attack not in controls.union(BASELINES)))
    fitted = {r.attack for r in report.summary if r.error is None}
    updates = f"{s.trials} {'update' if s.trials == 1 else 'updates'}"
    records = "one record" if s.batch_size == 1 else f"{s.batch_size} records"
    lines = [
        f"In federated learning a client trains on its own records and sends an update to a server. {updates} were "
        f"computed, each from {records} of {s.data}, with the model {s.model}, and attacked.",
        f"The attacker: {threat_model(s.threat_model).summary}. It sees the model and the update.",
        f"Attacks that were tried: {', '.join(a for a in attacks if a in fitted) or 'none'}.",
    ]
    if missing := [a for a in attacks if a not in fitted]:
        lines.append(f"{', '.join(missing)} could not run here; nothing is known from them.")
    if any(r.adaptive for r in report.summary):
        lines.append("Where a defence was in place, attackers who know of it were played as well as those who do not.")
    return lines


def came_out(configuration: Mapping[str, Any]) -> list[str]:
    """One configuration in sentences: what was rebuilt, how sure that is, what is guaranteed, what stays open."""
    lower, upper = configuration.get("lower"), configuration.get("upper")
    if not lower or not lower["records"]:
        return [str(configuration["sentence"])]
    k, n = lower["recovered"], lower["records"]
    if k:
        lines = [
            f"{k} of {n} records were rebuilt by at least one attack. So of all such records at least "
            f"{percent(lower['at_least'])} can be rebuilt (95 % confidence)."
        ]
    else:
        lines = [
            f"None of {n} records was rebuilt. That leaves room for up to {percent(at_most(0, n))} of all such records "
            "to be rebuilt by the same attacks (95 % confidence)."
        ]
    if lower["certified"]:
        lines.append(f"For {lower['certified']} of the rebuilt records the attacker could prove that they are right.")
    if traces := configuration.get("traces"):
        lines.append(
            f"Something of the records gets through all the same: for {traces['first']} of {traces['records']} of them "
            f"what was rebuilt is nearer to the true record than to any of {traces['candidates']} others of its kind."
        )
    if labels := configuration.get("labels"):
        lines.append(
            f"Labels: {labels['attack']} reads {percent(labels['share'])} of them, a guess {percent(labels['guess'])}. "
            "A label can be sensitive by itself, a diagnosis for example."
        )
    lines.append(_limit(upper))
    return lines


def _limit(upper: Mapping[str, Any] | None) -> str:
    if not upper or not upper["guaranteed"]:
        return "There is no guarantee: another attack, or more effort, may rebuild more."
    text = (
        f"Guarantee: whatever the attack, at most {percent(upper['gamma'])} of records can be rebuilt from what was "
        f"examined; a blind guess that has seen nothing already succeeds for up to {percent(upper['kappa']['high'])}."
    )
    if training := upper["training"]:
        text += f" Over the whole training as it was declared the limit is {percent(training['gamma'])}."
    return text


def not_covered(report: AuditReport) -> list[str]:
    """What this result says nothing about."""
    s = report.scenario
    lines = [
        "Attacks that were not run, and attackers who know more than is listed above.",
        f"Other data, other models and other moments of training: the model was {_state(report)}.",
        "Whether a person took part at all (membership), and properties of a whole batch, unless the report has them.",
    ]
    if threat_model(s.threat_model).may_change == "nothing":
        lines.append("A server that manipulates the model before it sends it. Such servers recover far more.")
    if s.local.seen == 1:
        lines.append("What many updates of the same client give away together: one update was examined at a time.")
    guaranteed = [c for c in report.verdict.configurations if (c.get("upper") or {}).get("guaranteed")]
    if guaranteed:
        lines.append(
            "Whether the real system clips, adds noise and samples as declared. The guarantee holds only if it does."
        )
    if any(not c["leaks"] for c in report.verdict.configurations):
        lines.append("Records unlike those that were drawn. Unusual records are often exposed most.")
    return lines


def next_steps(report: AuditReport, state: str) -> list[str]:
    """What to ask for, if anything."""
    if state == "leaks":
        return ["Do not deploy the leaking configuration as it is; ask for a defence with an accounted guarantee."]
    lines = []
    counts = [c["lower"]["records"] for c in report.verdict.configurations if c.get("lower")]
    enough = needed(_ENOUGH)
    if counts and min(counts) < enough:
        lines.append(
            f"Ask for at least {enough} attacked records: fewer cannot show that less than {percent(_ENOUGH)} leak."
        )
    if state == "unknown":
        lines.append("Ask for a defence with an accounted guarantee, or for stronger and longer attacks.")
    return lines


def _state(report: AuditReport) -> str:
    return str(report.environment.get("model state") or "as the report says")


def _measured(report: AuditReport) -> str:
    where = report.environment
    return (
        f"Leakgauge {where.get('leakgauge', '')}, commit {where.get('commit', '')}, {where.get('device', '')}, "
        f"seed {report.scenario.seed}."
    )
