"""The report as JUnit XML, so that a CI server shows each attack on each configuration as a test.

Which test fails: with a gate, the gate decides, as it decides the exit code. Without one, a leaking
configuration under test fails on the attack that the verdict names and on every other attack that recovered
something; an attack that recovered nothing passes even there. One of whose records nobody can tell is skipped: it has
neither passed nor failed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

from leakgauge.reading.visible import visible_lines
from leakgauge.report.cells import Cell, by_defense
from leakgauge.report.numbers import counted, percent, rate_bounds
from leakgauge.types import NOT_APPLICABLE, UNDEFENDED, AuditReport, ConfigurationVerdict
from leakgauge.verdict.flags import NO_TRUTH

# Everything that XML 1.0 cannot hold, escaped or not.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: AuditReport) -> str:
    verdicts = {c.defense: c for c in report.verdict.configurations}
    root = ET.Element("testsuites", name="leakgauge")
    _audit_suite(root, report)
    gate_passed = report.verdict.gate is not None and report.verdict.gate.passed
    for defense, group in by_defense(report).items():
        verdict = verdicts.get(defense, ConfigurationVerdict(defense, False, ""))
        if defense == UNDEFENDED and len(verdicts) > 1:
            verdict = replace(verdict, leaks=False)  # there for comparison; the defenses are what is tested
        suite = ET.SubElement(root, "testsuite", name=_clean(f"defense: {defense}"))
        for cell in (c for c in group if not c.control):
            _attack_case(suite, cell, verdict, gate_passed)
        if verdict.leaks and not gate_passed and suite.find("testcase/failure") is None:
            # The verdict stands even where no row of it can be named.
            case = _case(suite, f"leakgauge.{defense}", "verdict", 0.0)
            _outcome(case, "failure", "leak", verdict.sentence)
    _count(root)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _audit_suite(root: ET.Element, report: AuditReport) -> None:
    """What holds for the whole audit: was it finished, and did it pass the gate?"""
    suite = ET.SubElement(root, "testsuite", name="audit")
    properties = ET.SubElement(suite, "properties")
    scenario = report.scenario
    facts = {"model": scenario.model, "data": scenario.data, "threat_model": scenario.threat_model}
    for name, value in (facts | {"seed": str(scenario.seed)} | dict(report.environment)).items():
        ET.SubElement(properties, "property", name=_clean(name), value=_clean(str(value)))
    case = _case(suite, "leakgauge.audit", "complete", 0.0)
    if report.interrupted:
        _outcome(case, "error", "interrupted", "interrupted: finished cells only")
    if not report.scored and report.verdict.leaks:
        _outcome(_case(suite, "leakgauge.audit", "verdict", 0.0), "failure", "leak", report.verdict.sentence)
    gate = report.verdict.gate
    if gate is not None:
        case = _case(suite, "leakgauge.audit", f"gate {gate.metric}={gate.threshold}", 0.0)
        if not gate.passed:
            _outcome(case, "failure", "gate", gate.sentence)
    ET.SubElement(suite, "system-out").text = _clean(report.verdict.sentence)


def _attack_case(suite: ET.Element, cell: Cell, verdict: ConfigurationVerdict, gate_passed: bool) -> None:
    row, rate = cell.row, cell.row.success_rate
    name = f"{row.attack} ({cell.style})"
    case = _case(suite, f"leakgauge.{row.defense}", name, row.seconds)
    result = (
        f"recovered {rate.recovered} of {rate.records} records at {rate.criterion}: "
        f"{percent(rate.value)}, 95 % interval {rate_bounds(rate)}"
    )
    result += f" ({cell.doubtful})" if cell.doubtful else ""
    said = f"{result if cell.claims_records else cell.outcome}; {row.failed} of {counted('trial', row.trials)} failed"
    named = (row.attack, row.adaptive) == (verdict.attack, verdict.adaptive)
    if row.error is not None:
        fits = not row.error.startswith(NOT_APPLICABLE)
        _outcome(case, "error" if fits else "skipped", "attack could not run", row.error)
    elif verdict.leaks and not gate_passed and (named or rate.recovered > 0):
        _outcome(case, "failure", "leak", said, verdict.sentence)
    elif NO_TRUTH in row.flags:
        _outcome(case, "skipped", "not scored", said)
    elif row.undecided and not rate.recovered:
        _outcome(case, "skipped", "cannot tell", said)
    notes = [said] if row.error is None else []
    notes += [f"flags: {', '.join(row.flags)}"] if row.flags else []
    if notes:
        ET.SubElement(case, "system-out").text = _clean("\n".join(notes))


def _case(suite: ET.Element, classname: str, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_clean(classname), name=_clean(name), time=f"{seconds:.3f}")


def _outcome(case: ET.Element, tag: str, kind: str, message: str, detail: str = "") -> None:
    ET.SubElement(case, tag, type=kind, message=_clean(message)).text = _clean(detail or message)


def _count(root: ET.Element) -> None:
    for element in [*root.findall("testsuite"), root]:
        cases = list(element.iter("testcase"))
        element.set("tests", str(len(cases)))
        element.set("failures", str(sum(c.find("failure") is not None for c in cases)))
        element.set("errors", str(sum(c.find("error") is not None for c in cases)))
        element.set("skipped", str(sum(c.find("skipped") is not None for c in cases)))
        element.set("time", f"{sum(float(c.get('time', 0)) for c in cases):.3f}")


def _clean(text: str) -> str:
    return _ILLEGAL.sub("?", visible_lines(text))
