"""The page: one file, no request, nothing user-given taken as markup, best recovered first."""

import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser

import pytest
import torch

from leakgauge.report import to_html
from leakgauge.types import GateResult, LabelsRead, Pictures, Summary

VOID = {"meta", "img", "br", "hr", "line"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        # HTML lets these close by themselves; we do not rely on it.
        assert self._open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self._open):
            self.text += data


def words(text: str) -> str:
    return " ".join(Page(text).text.split())


def test_page_is_well_formed_and_asks_nothing_of_any_network(made):
    text = to_html(made.report, made.pictures)
    page = Page(text)
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"url\(|@import", text)
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed"}
    assert [a for tag, a in page.tags if tag == "script"] == [{}], "one script, and it stands in the page"
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "data"):
            assert (attributes.get(name) or "data:").startswith("data:")
        assert not [name for name in attributes if name.startswith("on")]


def test_the_same_report_gives_the_same_bytes(made):
    assert to_html(made.report, made.pictures) == to_html(made.report, made.pictures)


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}"


def test_everything_user_given_is_escaped(make):
    made = make(model=HOSTILE)
    r = made.report
    report = dataclasses.replace(
        r,
        scenario=dataclasses.replace(r.scenario, data=HOSTILE, weights=HOSTILE, defenses=(HOSTILE,)),
        verdict=dataclasses.replace(
            r.verdict,
            sentence=HOSTILE,
            configurations=tuple(dataclasses.replace(c, sentence=HOSTILE) for c in r.verdict.configurations),
            gate=GateResult(HOSTILE, 1.0, True, HOSTILE),
        ),
        summary=tuple(dataclasses.replace(s, attack=s.attack + HOSTILE, error=HOSTILE) for s in r.summary),
        flags=tuple(dataclasses.replace(f, id=HOSTILE, reason=HOSTILE, remedy=HOSTILE) for f in r.flags),
        facts=(HOSTILE,),
        environment={HOSTILE: HOSTILE},
    )
    text = to_html(report, made.pictures)
    assert text.count("<script") == 1
    assert "alert(1)</script" not in text
    assert not [a for tag, a in Page(text).tags if tag == "img" and not str(a["src"]).startswith("data:")]
    assert HOSTILE in Page(text).text


def test_first_screen_says_verdict_target_and_assumptions(made):
    text = words(to_html(made.report, made.pictures))
    top = text[: text.index("Verdict per configuration")]
    for part in (
        "lenet-dlg on photos32",
        "Leaks",
        made.report.verdict.sentence,
        "Most exposed record",
        "fedsgd",
        "a server that follows the protocol",
        "Zhu et al. 2019",
        "The true labels were not given",
        "noise-unaccounted",
        "Use dp-sgd.",
        "all 2 attacks on gaussian:std=0.1",
    ):
        assert part in top


@pytest.mark.parametrize(
    ("leaks", "passed", "tone", "said"),
    [
        (True, None, "bad", "Leaks"),
        (False, None, "warn", "No leak found, and no guarantee"),
        (True, True, "warn", "Gate passed."),
        (True, False, "bad", "Gate failed."),
        (False, False, "bad", "Gate failed."),
        (False, True, "good", "Gate passed."),
    ],
)
def test_banner_tells_the_verdict_in_words_and_colour(made, leaks, passed, tone, said):
    gate = GateResult("ssim", 0.5, bool(passed), ".")
    verdict = dataclasses.replace(made.report.verdict, leaks=leaks, gate=None if passed is None else gate)
    text = to_html(dataclasses.replace(made.report, verdict=verdict), None)
    assert f'class="banner {tone}"' in text
    assert said in words(text)


def test_every_cell_shows_its_pictures_and_failures(made):
    text = to_html(made.report, made.pictures)
    images = [a for tag, a in Page(text).tags if tag == "img"]
    # Four attacks of six records, less the failed trial's two; four of each baseline; two pictures each.
    assert len(images) == 2 * (4 * 6 - 2 + 2 * 4)
    assert all(a["alt"] for a in images)
    assert "1 of 3 trials failed." in words(text)
    assert "What a guess looks like" in words(text)


def test_without_pictures_the_page_says_so(made):
    text = to_html(made.report, None)
    assert "<img" not in text
    assert "The samples were not kept with this report." in words(text)


def test_an_attack_that_could_not_run_says_why(made):
    rows = (dataclasses.replace(made.report.summary[0], error="needs no pooling"), *made.report.summary[1:])
    text = words(to_html(dataclasses.replace(made.report, summary=rows), made.pictures))
    assert text.count("Could not run: needs no pooling") == 2  # beside the pictures and in the table


def test_interruption_is_announced(made):
    assert "Interrupted: finished cells only." in words(to_html(dataclasses.replace(made.report, interrupted=True)))


def test_table_has_every_row_and_marks_the_floors(made):
    text = to_html(made.report, made.pictures)
    assert 'class="baseline"' in text
    table = text[text.index('<table class="results">') :]
    for row in made.report.summary:
        assert row.attack in table
    rate: Summary = made.report.summary[0]
    assert f"{rate.success_rate.recovered} of {rate.success_rate.records}" in table


def test_tabular_records_are_compared_feature_by_feature(make):
    made = make("tabular", (30,))
    text = to_html(made.report, made.pictures)
    page = words(text)
    assert "<img" not in text
    assert "Best recovered: trial 0" in page
    assert "Worst recovered: trial 2" in page
    assert "MSE threshold" in page
    first = made.pictures.true[0, 0, 0].item()
    assert f"{first:.3f}" in page


def test_the_page_draws_quality_against_seconds(made):
    text = to_html(made.report, made.pictures)
    part = text[text.index("Quality against seconds") :]
    part = part[: part.index("</section>")]
    assert part.count('<figure class="chart">') == 2
    assert part.count("<title>inverting-gradients, adaptive: ") == 1
    assert part.count('class="spread ') == 4
    said = words(text)
    assert "PSNR, dB, mean per image" in said
    assert "seconds per victim" in said
    assert "Seconds are wall clock on the machine named below; victims that ran together share their time" in said
    assert "mean-image 9.0 dB" in said


def test_without_times_nothing_is_drawn_against_them(made):
    findings = tuple(dataclasses.replace(f, seconds=0.0) for f in made.report.findings)
    assert "Quality against seconds" not in to_html(dataclasses.replace(made.report, findings=findings))


def test_the_table_says_what_each_attack_spent(made):
    table = to_html(made.report, made.pictures).split('<table class="results">')[1].split("</table>")[0]
    assert '<td data-key="3.75">3.8 s<small>300 steps</small><small>6,000 evaluations</small></td>' in table


def test_an_empty_report_is_still_a_page(made):
    verdict = dataclasses.replace(made.report.verdict, configurations=(), leaks=False)
    empty = dataclasses.replace(made.report, findings=(), summary=(), flags=(), facts=(), verdict=verdict)
    assert "No leak found" in words(to_html(empty))


def test_the_browser_is_told_the_hash_of_the_one_script(made):
    text = to_html(made.report)
    script = text[text.index("<script>") + len("<script>") : text.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_every_number_of_the_table_carries_what_it_sorts_by(made):
    table = to_html(made.report, made.pictures).split('<table class="results">')[1].split("</table>")[0]
    rate = made.report.summary[0].success_rate.value
    assert f'<td class="strong" data-key="{rate}">' in table
    assert table.count('data-style="adaptive"') == 1


def test_the_page_draws_how_the_objectives_fell(made):
    part = to_html(made.report, made.pictures).split("How the attacks’ own objectives fell")[1].split("</section>")[0]
    assert part.count("<polygon") == 4
    assert "inverting-gradients, adaptive <b>to 0.013, n = 3</b>" in part


def test_without_traces_no_objective_is_drawn(made):
    findings = tuple(dataclasses.replace(f, trace=()) for f in made.report.findings)
    text = to_html(dataclasses.replace(made.report, findings=findings), made.pictures)
    assert "own objectives" not in text
    assert 'class="trace"' not in text


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 160, 160)])
def test_the_page_of_500_trials_can_be_mailed(make, shape):
    """Noise, which no PNG makes smaller."""
    made, trials = make(shape=(3, 8, 8)), 500
    findings = tuple(
        dataclasses.replace(f, trial=t, trace=tuple(0.1234 * k for k in range(24, 0, -1)))
        for f in made.report.findings
        if f.trial == 0
        for t in range(trials)
    )
    noise = torch.rand(trials, 2, *shape)
    data = dataclasses.replace(made.report.data, shape=shape)
    report = dataclasses.replace(made.report, findings=findings, data=data)
    text = to_html(report, Pictures(noise, dict.fromkeys(made.pictures.recovered, noise)))
    assert 1_000_000 < len(text.encode()) < 10_000_000
    assert "of 1000 records are not on this page" in text


def test_the_run_can_be_repeated_from_the_page(made):
    text = words(to_html(made.report))
    assert "leakgauge audit scenario.toml" in text
    assert 'model = "lenet-dlg"' in text
    assert "commit f7e39c1" in text


def test_an_attack_on_labels_alone_shows_what_it_read_and_no_recovered_records(labels_only):
    page = to_html(labels_only, Pictures(torch.zeros(3, 2, 3, 8, 8), {}))
    assert "96.9 % of the labels read, no records claimed" in page
    assert "0 of 0" not in page
    assert "This attack claims no records, so there is nothing to show." in page


def test_labels_that_were_read_are_no_clean_bill(made):
    read = LabelsRead("labels", share=1.0, guess=0.1, records=1, read=1, proven=0)
    entry = dataclasses.replace(made.report.verdict.configurations[0], leaks=False, labels=read)
    verdict = dataclasses.replace(made.report.verdict, leaks=False, configurations=(entry,))
    page = to_html(dataclasses.replace(made.report, verdict=verdict))
    assert "No record recovered, but labels read" in page
    assert 'class="banner warn"' in page
    assert '<span class="badge warn">labels read</span>' in page
