"""JUnit: a CI server sees each attack on each configuration, and red exactly where it leaks."""

import dataclasses
from xml.etree import ElementTree as ET

from leakgauge.report import to_junit
from leakgauge.report.cells import BASELINES


def cases(text: str) -> dict[tuple[str, str], ET.Element]:
    return {(c.get("classname"), c.get("name")): c for c in ET.fromstring(text.encode()).iter("testcase")}


def failed(text: str) -> set[tuple[str, str]]:
    return {key for key, case in cases(text).items() if case.find("failure") is not None}


def test_one_case_per_configuration_and_attack(made):
    found = {key for key in cases(to_junit(made.report)) if key[0] != "leakgauge.audit"}
    wanted = {
        (f"leakgauge.{r.defense}", f"{r.attack} ({'adaptive' if r.adaptive else 'plain'})")
        for r in made.report.summary
        if r.attack not in BASELINES
    }
    assert found == wanted


def alone(made):
    """The same report with nothing but the undefended configuration in it, and so under test."""
    verdict = made.report.verdict
    kept = tuple(c for c in verdict.configurations if c["defense"] == "none")
    return dataclasses.replace(made.report, verdict=dataclasses.replace(verdict, configurations=kept))


def test_only_the_leaking_configuration_fails(made):
    red = failed(to_junit(alone(made)))
    assert ("leakgauge.none", "inverting-gradients (plain)") in red
    assert {classname for classname, _ in red} == {"leakgauge.none"}


def test_the_undefended_comparison_is_not_under_test(made):
    assert failed(to_junit(made.report)) == set()


def test_an_attack_that_does_not_fit_is_skipped(made):
    rows = (
        dataclasses.replace(made.report.summary[0], error="not applicable: a convolution"),
        *made.report.summary[1:],
    )
    case = cases(to_junit(dataclasses.replace(made.report, summary=rows)))["leakgauge.none", "dlg (plain)"]
    assert case.find("skipped") is not None
    assert case.find("error") is None


def test_counts_agree_with_the_cases(made):
    text = to_junit(made.report)
    root = ET.fromstring(text.encode())
    assert int(root.get("tests")) == len(cases(text))
    assert int(root.get("failures")) == len(failed(text))
    assert int(root.get("skipped")) == 0
    assert sum(int(s.get("failures")) for s in root) == len(failed(text))


def test_an_attack_that_could_not_run_is_an_error(made):
    rows = (dataclasses.replace(made.report.summary[0], error="needs no pooling"), *made.report.summary[1:])
    case = cases(to_junit(dataclasses.replace(made.report, summary=rows)))["leakgauge.none", "dlg (plain)"]
    assert case.find("error").get("message") == "needs no pooling"
    assert case.find("failure") is None


def gated(made, passed):
    gate = {"metric": "ssim", "threshold": 0.5, "passed": passed, "sentence": "said so"}
    return dataclasses.replace(made.report, verdict=dataclasses.replace(made.report.verdict, gate=gate))


def test_a_passed_gate_turns_everything_green(made):
    assert failed(to_junit(gated(made, True))) == set()


def test_a_failed_gate_is_red(made):
    assert ("leakgauge.audit", "gate ssim=0.5") in failed(to_junit(gated(made, False)))


def test_an_interrupted_audit_is_not_green(made):
    case = cases(to_junit(dataclasses.replace(made.report, interrupted=True)))["leakgauge.audit", "complete"]
    assert case.find("error") is not None


def test_a_leak_without_a_row_still_fails(made):
    assert ("leakgauge.none", "verdict") in failed(to_junit(dataclasses.replace(alone(made), summary=())))


def test_any_text_gives_valid_xml(make):
    made = make(model="<a & 'b' \"c\">]]>\x00\x08\ud800\ufffe")
    root = ET.fromstring(to_junit(made.report).encode())
    value = root.find(".//property[@name='model']").get("value")
    assert value == "<a & 'b' \"c\">]]>\\u0000\\u0008\\ud800?"


def test_an_attack_on_labels_alone_says_what_it_read(labels_only):
    said = to_junit(labels_only)
    assert "96.9 % of the labels read, no records claimed; 0 of 3 trials failed" in said
    assert "0 of 0 records" not in said


def test_an_attack_of_which_nobody_can_tell_neither_passes_nor_fails(made):
    """Its records look recovered, and there are too few others to say whether by chance."""
    first, *others = made.report.summary
    rate = dataclasses.replace(first.success_rate, recovered=0, value=0.0)
    row = dataclasses.replace(first, success_rate=rate, met=4, undecided=4, trials=1, failed=0)
    case = cases(to_junit(dataclasses.replace(made.report, summary=(row, *others))))["leakgauge.none", "dlg (plain)"]
    assert case.find("skipped").get("type") == "cannot tell"
    assert "(4 by score, undecided); 0 of 1 trial failed" in case.find("skipped").get("message")
    assert case.find("failure") is None
    doubted = dataclasses.replace(row, undecided=0)
    text = to_junit(dataclasses.replace(made.report, summary=(doubted, *others)))
    assert "(4 by score, not credible)" in cases(text)["leakgauge.none", "dlg (plain)"].find("system-out").text
    assert cases(text)["leakgauge.none", "dlg (plain)"].find("skipped") is None
