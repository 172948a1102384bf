"""The page in plain words: written from the results, no private sample on it, nothing user-given taken as markup."""

import dataclasses
import re

import pytest

from leakgauge.audit import run_audit
from leakgauge.report import to_officer
from leakgauge.report.officer import came_out, next_steps, not_covered, overall, tried
from leakgauge.types import Scenario, Skipped

TINY = Scenario(data="digits", model="mlp:hidden=16", trials=6, attacks=("linear",))


@pytest.fixture(scope="module")
def leaking():
    return run_audit(TINY)[0]


@pytest.fixture(scope="module")
def guarded():
    return run_audit(dataclasses.replace(TINY, defenses=("dp-sgd:sigma=5,q=1,rounds=1",)))[0]


@pytest.fixture(scope="module")
def noisy():
    return run_audit(dataclasses.replace(TINY, defenses=("gaussian:std=5",), gate="ssim=0.5,confidence=0.95"))[0]


def words(page: str) -> str:
    body = page[page.index("<body>") :]
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_the_answer_comes_first(leaking, guarded, noisy):
    for report, state, tone, said in (
        (leaking, "leaks", "bad", "Private records could be rebuilt"),
        (guarded, "protected", "good", "carries a mathematical guarantee"),
        (noisy, "unknown", "warn", "whether the records are safe is not known"),
    ):
        page = to_officer(report)
        assert overall(report) == state
        assert f'class="banner {tone}"' in page
        assert said in words(page)[:600]


def test_a_guarantee_for_some_or_a_weak_one_is_told_as_such(guarded, noisy):
    def with_only(*entries):
        return dataclasses.replace(guarded, verdict=dataclasses.replace(guarded.verdict, configurations=entries))

    strong, none = guarded.verdict.configurations[1], noisy.verdict.configurations[1]
    assert "For some of these a mathematical guarantee holds" in to_officer(with_only(strong, none))
    weak = {**strong, "standing": "unknown"}
    assert "but it allows an attacker much more than a blind guess" in to_officer(with_only(weak))


def test_it_asks_nothing_of_any_network_and_shows_no_sample(leaking):
    page = to_officer(leaking)
    for outside in ("http://", "https://", "<script", "<img", "data:image", "url("):
        assert outside not in page
    assert page == to_officer(leaking)


def test_what_came_out_has_its_confidence(leaking, noisy):
    (bare,) = leaking.verdict.configurations
    first = came_out(bare)[0]
    assert first.startswith(
        "6 of 6 records were rebuilt by at least one attack. So of all such records at least 54.1 %"
    )
    hidden = came_out(noisy.verdict.configurations[1])
    assert hidden[0].startswith("None of 6 records was rebuilt. That leaves room for up to 45.9 %")
    assert hidden[-1].startswith("There is no guarantee")


def test_a_guarantee_is_told_with_the_blind_guess(guarded):
    said = came_out(guarded.verdict.configurations[1])[-1]
    assert said.startswith("Guarantee: whatever the attack, at most")
    assert "a blind guess that has seen nothing already succeeds for up to" in said
    assert "Over the whole training as it was declared" in said


def test_what_is_not_covered_follows_the_scenario(leaking, guarded):
    assert any("manipulates the model" in line for line in not_covered(leaking))
    assert any("samples as declared" in line for line in not_covered(guarded))
    assert not any("samples as declared" in line for line in not_covered(leaking))
    tampered = dataclasses.replace(
        leaking, scenario=dataclasses.replace(leaking.scenario, threat_model="malicious-architecture")
    )
    assert not any("manipulates the model" in line for line in not_covered(tampered))


def test_the_next_steps_ask_for_what_is_missing(leaking, noisy):
    assert "Do not deploy" in next_steps(leaking, "leaks")[0]
    assert "at least 72 attacked records" in next_steps(noisy, "unknown")[0]
    assert "accounted guarantee" in next_steps(noisy, "unknown")[1]


def test_the_gate_and_an_interruption_are_told(noisy):
    assert "Gate ssim=0.5,confidence=0.95,share=0.05 failed" in words(to_officer(noisy))
    assert "Interrupted:" in words(to_officer(dataclasses.replace(noisy, interrupted=True)))


def test_attacks_that_could_not_run_are_named(leaking):
    rows = tuple(dataclasses.replace(r, error="no") if r.attack == "linear" else r for r in leaking.summary)
    assert any("linear could not run" in line for line in tried(dataclasses.replace(leaking, summary=rows)))


def test_attacks_that_were_skipped_are_listed_with_the_reason(leaking):
    skipped = (
        Skipped("rgap", "all", False, "not applicable: a bias hides the input"),
        Skipped("idlg", "prune", True, "settled by linear: every record was recovered"),
        Skipped("<script>", "all", False, "not applicable: <b>"),
    )
    page = to_officer(dataclasses.replace(leaking, skipped=skipped))
    said = words(page)
    assert "Not run: rgap: not applicable: a bias hides the input" in said
    assert "Not run against prune: idlg (adaptive): settled by linear: every record was recovered" in said
    assert said.index("What was tried") < said.index("What was not run, and why") < said.index("What came out")
    assert "<script" not in page
    assert "What was not run" not in to_officer(leaking)


def test_names_from_users_are_escaped(leaking):
    hostile = dataclasses.replace(leaking.scenario, model="<script>alert(1)</script>", data="<b>")
    page = to_officer(dataclasses.replace(leaking, scenario=hostile))
    assert "<script" not in page
    assert "<b>" not in page


def test_an_old_report_and_an_empty_one_still_have_a_page(made):
    assert "whether the records are safe is not known" in to_officer(
        dataclasses.replace(made.report, verdict=dataclasses.replace(made.report.verdict, leaks=False))
    )
    verdict = dataclasses.replace(made.report.verdict, configurations=(), leaks=False)
    empty = dataclasses.replace(made.report, findings=(), summary=(), flags=(), told=(), verdict=verdict)
    assert "Nothing was measured." in to_officer(empty)
