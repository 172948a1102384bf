"""The page in plain words: written from the results, no private sample on it, nothing user-given taken as markup."""

import dataclasses
import re

import pytest

from leakgauge.audit.run import run_audit
from leakgauge.report import to_officer, to_summary
from leakgauge.report.officer import about, answer, doubts, next_steps, overall, plain
from leakgauge.types import Flag, GateResult, LabelsRead, Scenario, Skipped
from leakgauge.verdict.flags import FLAGS

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


def part(report, heading: str, *entries) -> str:
    """The words of one part of the page; with `entries`, as if these were all configurations."""
    if entries:
        report = with_verdict(report, report.verdict.leaks, *entries)
    return words("<body>" + to_officer(report).partition(f"<h2>{heading}</h2>")[2].partition("</section>")[0])


def test_the_answer_comes_first(leaking, guarded, noisy):
    for report, state, tone, said in (
        (leaking, "leaks", "bad", "Without any defense, private records could be rebuilt"),
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
    some = with_only(strong, none)
    assert [line.split(",")[0] for line in answer(some)] == ["With gaussian:std=5", "With dp-sgd:sigma=5"]
    assert (overall(some), overall(with_only(strong))) == ("unknown", "protected")
    weak = dataclasses.replace(strong, standing="unknown")
    assert "but it allows an attacker much more than a blind guess" in to_officer(with_only(weak))


def with_verdict(report, leaks, *entries):
    return dataclasses.replace(report, verdict=dataclasses.replace(report.verdict, leaks=leaks, configurations=entries))


def test_each_sentence_of_the_answer_is_about_the_configurations_it_names(leaking, noisy):
    """What leaks is named, what does not is not named with it, and labels that were read stay in sight."""
    (bare,), held = leaking.verdict.configurations, noisy.verdict.configurations[1]
    read = LabelsRead("labels", share=1.0, guess=0.1, records=6, read=6, proven=6)
    pruned = dataclasses.replace(bare, defense="prune:share=0.9", labels=None)
    mixed = with_verdict(leaking, True, bare, dataclasses.replace(held, labels=read), pruned)
    assert [line.partition(", ")[0] for line in answer(mixed)] == [
        "With prune:share=0.9",
        "With gaussian:std=5",
        "With gaussian:std=5",
    ]
    assert answer(mixed)[0].startswith("With prune:share=0.9, private records could be rebuilt")
    assert answer(mixed)[-1] == "With gaussian:std=5, labels of records were read."
    assert next_steps(mixed, "leaks") == [
        "Do not deploy prune:share=0.9 as it is; ask for a defense with an accounted guarantee."
    ]


def test_what_cannot_be_told_is_not_called_clean(noisy):
    unsure = dataclasses.replace(noisy.verdict.configurations[1], undecided=4)
    report = with_verdict(noisy, False, unsure)
    assert overall(report) == "unknown"
    assert "it is not clear whether any was rebuilt" in answer(report)[0]
    said = part(report, "What came out")
    assert "Whether any of 6 records was rebuilt could not be determined" in said
    assert "None of" not in " ".join([*answer(report), said])
    assert "| 0 of 6, 4 undecided |" in to_summary(report)
    one = dataclasses.replace(unsure, lower=dataclasses.replace(unsure.lower, records=1))
    said = part(report, "What came out", one)
    assert "Whether the one record was rebuilt could not be determined: some attempts resemble it" in said


def test_labels_that_were_read_take_the_green_from_a_guarantee(guarded):
    strong = guarded.verdict.configurations[1]
    assert 'class="banner good"' in to_officer(with_verdict(guarded, False, strong))
    read = LabelsRead("labels", share=1.0, guess=0.1, records=6, read=6, proven=0)
    assert 'class="banner warn"' in to_officer(with_verdict(guarded, False, dataclasses.replace(strong, labels=read)))


def test_the_bar_is_explained_in_one_sentence(leaking, make):
    for report in (leaking, make("tabular", (30,)).report):
        (said,) = re.findall(r"<p>(A record counts as rebuilt .*?)</p>", to_officer(report))
        assert said.count(". ") == 0
    assert "SSIM, of at least 0.6" in words(to_officer(leaking))
    assert "values off by 3% of their range" in said


def test_the_page_speaks_to_nobody_who_develops(leaking, noisy):
    skipped = (Skipped("linear", "all", False, "not applicable: needs nn.Linear on the flattened input; use dlg"),)
    for report in (leaking, noisy, dataclasses.replace(leaking, skipped=skipped)):
        said = words(to_officer(report))
        for advice in (" --", "use dlg", "nn.Linear", "use at", "time_budget"):
            assert advice not in said


def test_a_given_update_is_told_as_it_was_given(leaking):
    """Nothing was computed or drawn, and what two given records show is no share of all others."""
    given = dataclasses.replace(
        leaking,
        environment={**leaking.environment, "model state": "weights from net.pt"},
        scenario=dataclasses.replace(leaking.scenario, update="u.pt", trials=1, batch_size=2),
    )
    said = words(to_officer(given))
    assert "The update of one client, from 2 records, was given and attacked, with the model mlp:hidden=16." in said
    assert "the model had the weights from net.pt" in said
    assert "So of all such records" not in said
    simulated = dataclasses.replace(leaking, scenario=dataclasses.replace(leaking.scenario, trials=1))
    assert "1 update was computed from one record of digits" in words(to_officer(simulated))
    recorded = dataclasses.replace(leaking, scenario=dataclasses.replace(leaking.scenario, update="f", round=3))
    assert "The updates of 6 clients, each from one record, were recorded in round 3" in words(to_officer(recorded))


def test_it_asks_nothing_of_any_network_and_shows_no_sample(leaking):
    page = to_officer(leaking)
    for outside in ("http://", "https://", "<script", "<img", "data:image", "url("):
        assert outside not in page
    assert page == to_officer(leaking)


def test_what_came_out_has_its_confidence(leaking, noisy):
    (bare,) = leaking.verdict.configurations
    sure = "6 of 6 records were rebuilt by at least one attack. So of all such records at least 54.1 %"
    assert sure in part(leaking, "What came out", bare)
    hidden = part(noisy, "What came out", noisy.verdict.configurations[1])
    assert "None of 6 records was rebuilt. That leaves room for up to 45.9 %" in hidden
    assert "There is no guarantee" in hidden


def test_a_guarantee_is_told_with_the_blind_guess(guarded):
    said = part(guarded, "What came out", guarded.verdict.configurations[1])
    assert "Guarantee, if the noise is added as declared: whatever the attack, at most" in said
    assert "a blind guess that has seen nothing already succeeds for up to" in said
    assert "Over the whole training as it was declared" in said


def test_what_is_not_covered_follows_the_scenario(leaking, guarded):
    heading = "What is not covered"
    assert "manipulates the model" in part(leaking, heading)
    assert "samples as declared" in part(guarded, heading)
    assert "samples as declared" not in part(leaking, heading)
    tampered = dataclasses.replace(leaking.scenario, threat_model="malicious-architecture")
    assert "manipulates the model" not in part(dataclasses.replace(leaking, scenario=tampered), heading)


def test_the_next_steps_ask_for_what_is_missing(leaking, noisy):
    assert "Do not deploy" in next_steps(leaking, "leaks")[0]
    assert "at least 72 attacked records" in next_steps(noisy, "unknown")[0]
    assert "accounted guarantee" in next_steps(noisy, "unknown")[1]


def test_the_gate_and_an_interruption_are_told(noisy):
    limit = "The limit that was set, at most 5 % of all records, with 95 % confidence, to reach an SSIM of 0.5, was"
    assert f"{limit} not shown to be kept" in words(to_officer(noisy))
    gate = GateResult("ssim", 0.5, False, "", reached=1, records=6)
    over = dataclasses.replace(noisy, verdict=dataclasses.replace(noisy.verdict, gate=gate))
    limit = "The limit that was set, no attacked record to reach an SSIM of 0.5, was"
    assert f"{limit} exceeded: 1 of 6 records reached it." in words(to_officer(over))
    held = dataclasses.replace(gate, passed=True, reached=0)
    over = dataclasses.replace(noisy, verdict=dataclasses.replace(noisy.verdict, gate=held))
    assert f"{limit} kept." in words(to_officer(over))
    assert "Interrupted:" in words(to_officer(dataclasses.replace(noisy, interrupted=True)))


def test_attacks_that_could_not_run_are_named(leaking):
    rows = tuple(dataclasses.replace(r, error="no") if r.attack == "linear" else r for r in leaking.summary)
    assert "linear could not run" in part(dataclasses.replace(leaking, summary=rows), "What was tried")


def test_attacks_that_were_skipped_are_listed_with_the_reason(leaking):
    skipped = (
        Skipped("rgap", "all", False, "not applicable: a bias hides the input"),
        Skipped("imprint", "all", False, "not applicable: 'honest-but-curious' may not change the model"),
        Skipped("idlg", "prune", True, "not needed: linear recovered every record"),
        Skipped("idlg", "none", True, "not needed: linear recovered every record"),
        Skipped("<script>", "all", False, "not applicable: <b>"),
    )
    page = to_officer(dataclasses.replace(leaking, skipped=skipped))
    said = words(page)
    assert "rgap, &lt;script&gt;: cannot work on this model and these updates." in said
    assert "imprint: beyond what this attacker may do." in said
    assert "idlg (with prune, without any defense): not needed, as every record had been rebuilt before." in said
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
    empty = dataclasses.replace(made.report, findings=(), summary=(), flags=(), facts=(), verdict=verdict)
    assert "Nothing was measured." in to_officer(empty)


# --- doubts ---------------------------------------------------------------------------------------

ADVICE = re.compile(r"--\w|`|\+labels|leakgauge |steps|restarts|raise |repeat with|try ")


def flagged(report, *cells):
    """The same audit with a flag on these rows."""
    rows = tuple(
        dataclasses.replace(r, flags=("diverged",) if (r.attack, r.defense) in cells else ()) for r in report.summary
    )
    return dataclasses.replace(report, summary=rows, flags=(FLAGS["diverged"],))


@pytest.mark.parametrize("flag", FLAGS)
def test_no_doubt_gives_advice_to_developers(flag):
    assert not ADVICE.search(plain(FLAGS[flag]))


def test_a_doubt_begins_with_the_configuration_and_the_attack_it_is_about(made):
    (said,) = doubts(flagged(made.report, ("dlg", "gaussian:std=0.1")))
    assert said.startswith("With gaussian:std=0.1 (dlg not knowing of it): the attack broke down")
    (said,) = doubts(flagged(made.report, ("inverting-gradients", "gaussian:std=0.1")))
    assert said.startswith("With gaussian:std=0.1 (inverting-gradients knowing of it): ")
    (said,) = doubts(flagged(made.report, ("dlg", "none")))
    assert said.startswith("Without any defense (dlg): ")


def test_a_doubt_about_every_attack_says_so_once(made):
    both = flagged(made.report, ("dlg", "none"), ("inverting-gradients", "none"), ("dlg", "gaussian:std=0.1"))
    where = "Without any defense (every attack) and with gaussian:std=0.1 (dlg not knowing of it)"
    assert about(both, "diverged") == where
    assert about(made.report, "bound-exceeded") == "The whole audit"


def test_a_flag_without_plain_words_keeps_its_reason(made):
    assert plain(Flag("new", "Something new.", "Use --this.")) == "Something new"
    assert doubts(made.report) == ["With gaussian:std=0.1 (every attack): Noise without an accountant."]
