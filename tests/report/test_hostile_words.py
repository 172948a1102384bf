"""Whatever a user, a client or a file calls itself: in every format it stays text, and nothing of it runs."""

import dataclasses
import json
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from leakgauge.report import from_json, to_comparison, to_html, to_json, to_junit, to_markdown, to_officer, to_summary
from leakgauge.report.blind_page import to_blind_page
from leakgauge.report.markdown import AuditedRound, rounds_page
from leakgauge.types import Costs, Finding, Skipped
from leakgauge.types.ledger import Ablation
from leakgauge.types.report import Cost, Exposure, Interval
from leakgauge.types.triage import Clue

HOSTILE = (
    "\"'></title></style></script><script>window.ran=1</script><img src=x onerror=window.ran=1>"
    "<svg/onload=window.ran=1>{{ 7 * 7 }}{% raw %}`|[x](javascript:window.ran=1)![y](http://z/)\n```\n<marquee>&amp;"
)
# Words that the program chooses from: another one is refused when a report is read.
CHOSEN = {
    "batch_labels",
    "variants",
    "precision",
    "suite",
    "threat_model",
    "kind",
    "optimizer",
    "batchnorm",
    "loss",
    "standing",
    "criterion",
    "severity",
    "policy",
    "metric",
}


def spoilt(plain: Any, key: str = "") -> Any:
    """Every text with hostile words behind it; equal texts stay equal, so that names still meet."""
    if isinstance(plain, dict):
        named = {f"{k}{HOSTILE}" if key == "environment" else k: v for k, v in plain.items()}
        return {k: spoilt(v, k) for k, v in named.items()}
    if isinstance(plain, list):
        return [spoilt(v, key) for v in plain]
    return plain + HOSTILE if isinstance(plain, str) and key not in CHOSEN and plain != "none" else plain


@pytest.fixture
def everything(made):
    """A report in which every part has something to say, and all of it is hostile."""
    r = made.report
    whole = dataclasses.replace(
        r,
        interrupted=True,
        scenario=dataclasses.replace(r.scenario, weights="w.pt", update=None, metrics=("mae",), gate="ssim=0.5"),
        verdict=dataclasses.replace(
            r.verdict, gate={"metric": "ssim", "threshold": 0.5, "passed": False, "sentence": "It failed."}
        ),
        findings=tuple(dataclasses.replace(f, spec="dlg:steps=3", note="a note", trace=(2.0, 1.0)) for f in r.findings),
        summary=tuple(
            dataclasses.replace(s, flags=("noise-unaccounted",), error="broke off" if n == 2 else None)
            for n, s in enumerate(r.summary)
        ),
        costs=Costs(tuple(Cost(d, 0.5, Interval(1.0, 1.0, 1.0), 8) for d in ("none", "gaussian:std=0.1")), "2 rounds"),
        exposure=(Exposure("none", ((0.5, 0.1),) * 3, 0.9),),
        triage=(Clue("id", "what", "value", "meaning", "exposed"),),
        skipped=(Skipped("rgap", "none", False, "why"),),
        ledger=(Ablation("none", "dlg", False, "labels", "told", "inferred", 1, 0, 6, "ssim", 0.5, 0.4, "why not"),),
    )
    plain = json.loads(to_json(whole))
    del plain["digest"]  # for what is changed below
    return from_json(json.dumps(spoilt(plain))), made.pictures


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag

    def handle_data(self, data):
        self.text += data


def check(page: Tags, scripts: int) -> None:
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == scripts
    assert not {"iframe", "object", "embed", "link", "base", "marquee"} & set(names)
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for place in ("src", "href", "action"):
            assert (attributes.get(place) or "data:").startswith(("data:", "#", "%22")), (tag, attributes)
    assert "{{ 7 * 7 }}{% raw %}" in page.text


@pytest.mark.parametrize(
    ("form", "scripts"),
    [
        (lambda report, pictures: to_html(report, pictures), 1),
        (lambda report, pictures: to_officer(report), 0),
        (lambda report, pictures: to_comparison(report, report, (HOSTILE, HOSTILE)), 1),
    ],
    ids=["report", "officer", "comparison"],
)
def test_pages_hold_it_as_text(everything, form, scripts):
    page = Tags(form(*everything))
    check(page, scripts)
    assert "<script>window.ran=1</script>" in page.text


@pytest.mark.parametrize("form", [to_markdown, to_summary], ids=["markdown", "summary"])
def test_markdown_holds_it_as_text(everything, form):
    text = form(everything[0])
    page = Tags(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    check(page, 0)
    allowed = {
        "h1",
        "h2",
        "h3",
        "p",
        "ul",
        "li",
        "strong",
        "sub",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "pre",
        "code",
        "em",
    }
    assert {tag for tag, _ in page.tags} <= allowed


def test_junit_holds_it_as_text(everything):
    root = ET.fromstring(to_junit(everything[0]).partition("\n")[2])
    known = {"testsuites", "testsuite", "testcase", "properties", "property", "failure", "error", "skipped"}
    assert {e.tag for e in root.iter()} <= known | {"system-out"}
    assert any("<script>window.ran=1</script>" in value for e in root.iter() for value in e.attrib.values())


def test_the_page_of_recorded_rounds_holds_it_as_text(everything):
    report = dataclasses.replace(everything[0], clients=(HOSTILE, HOSTILE))
    rounds = [AuditedRound(HOSTILE, ((HOSTILE, HOSTILE),), report), AuditedRound(HOSTILE, ((HOSTILE, HOSTILE),))]
    text = rounds_page(HOSTILE, 0, rounds)
    check(Tags(MarkdownIt("commonmark", {"html": True}).enable("table").render(text)), 0)


def test_the_page_without_samples_holds_it_as_text(blind):
    finding = Finding(HOSTILE, HOSTILE, False, 0, 0, {}, error=HOSTILE)
    report = blind(finding, dataclasses.replace(finding, trial=1, error=None), clients=(HOSTILE, HOSTILE)).report
    clue = Clue(HOSTILE, HOSTILE, HOSTILE, HOSTILE, "exposed")
    check(Tags(to_blind_page(dataclasses.replace(report, triage=(clue,), environment={HOSTILE: HOSTILE}))), 0)
    text = to_markdown(report)
    check(Tags(MarkdownIt("commonmark", {"html": True}).enable("table").render(text)), 0)
