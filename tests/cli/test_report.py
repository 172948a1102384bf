"""`leakgauge report DIR --to FORMAT`: a finished run in another format."""

from __future__ import annotations

import json
import shutil
from xml.etree import ElementTree

import pytest

NAMES = {
    "html": "report.html",
    "json": "report.json",
    "markdown": "report.md",
    "junit": "report.xml",
    "summary": "summary.md",
    "officer": "officer.html",
}


@pytest.fixture
def run(leakgauge, small, tmp_path):
    asked = ("--attacks", "linear", "--defenses", "prune", "--out", "run", "--keep-private")
    assert leakgauge("audit", *small, *asked).code == 0
    return tmp_path / "run"


@pytest.mark.parametrize("form", NAMES)
def test_every_format_is_written_anew_and_alike(leakgauge, run, form):
    before = (run / NAMES[form]).read_text()
    if form != "json":
        (run / NAMES[form]).unlink()
    outcome = leakgauge("report", "run", "--to", form)
    assert outcome.code == 0
    assert outcome.out.strip() == f"run/{NAMES[form]}"
    assert (run / NAMES[form]).read_text() == before


def test_html_keeps_its_pictures_and_asks_nobody(leakgauge, run):
    leakgauge("report", "run", "--to", "html")
    page = (run / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 4
    for outside in ('src="http', 'href="http', "url(http", "@import", "<script src"):
        assert outside not in page


def test_junit_is_well_formed(leakgauge, run):
    leakgauge("report", "run", "--to", "junit")
    assert ElementTree.parse(run / "report.xml").getroot().tag.startswith("testsuite")


def test_other_folder_and_json(leakgauge, run, tmp_path):
    outcome = leakgauge("report", "run", "--to", "markdown", "--out", "elsewhere", "--json")
    assert outcome.json == {"markdown": "elsewhere/report.md"}
    assert (tmp_path / "elsewhere" / "report.md").is_file()


def test_run_whose_samples_were_removed_is_still_reported(leakgauge, run, one_line):
    """Before a report is passed on, the private samples may have been deleted."""
    shutil.rmtree(run / "cells")
    (run / "truth.safetensors").unlink()
    before = (run / "report.html").read_bytes()
    assert "page that is there has pictures" in one_line(leakgauge("report", "run", "--to", "html"))
    assert (run / "report.html").read_bytes() == before, "only another run would bring the pictures back"
    outcome = leakgauge("report", "run", "--to", "html", "--out", "passed-on")
    assert outcome.code == 0
    assert "no pictures; see --keep-private" in outcome.err
    assert not (run / "cells").exists(), "reading a run must not change it"


def test_two_runs_on_one_page(leakgauge, run, small, tmp_path):
    assert leakgauge("audit", *small, "--attacks", "linear", "--defenses", "sign", "--out", "other").code == 0
    outcome = leakgauge("report", "run", "--compare", "other", "--json")
    assert outcome.json == {"comparison": "run/comparison.html"}
    page = (tmp_path / "run" / "comparison.html").read_text()
    assert 'First: <span class="name">run</span>' in page
    assert 'Second: <span class="name">other</span>' in page
    assert leakgauge("report", "run", "--compare", "other", "--out", "both").out.strip() == "both/comparison.html"


def test_a_comparison_needs_two_runs_and_is_a_page(leakgauge, run, one_line, files_in, tmp_path):
    before = files_in(tmp_path)
    assert "'nowhere'" in one_line(leakgauge("report", "run", "--compare", "nowhere"))
    assert "leave --to out" in one_line(leakgauge("report", "run", "--compare", "run", "--to", "markdown"))
    assert files_in(tmp_path) == before


def test_unknown_format_is_refused(leakgauge, run, one_line):
    assert "did you mean 'html'?" in one_line(leakgauge("report", "run", "--to", "htm"))


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00 bytes", b"{", b"[]", b"{}", b'{"schema": 1}', b'{"schema": 99}'],
    ids=["empty", "bytes", "cut off", "a list", "nothing in it", "keys missing", "another schema"],
)
def test_damaged_report_is_refused(leakgauge, tmp_path, one_line, files_in, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report.json").write_bytes(content)
    one_line(leakgauge("report", "run"))
    assert files_in(tmp_path) == ["run/report.json"]


def test_report_of_another_program_says_what_is_missing(leakgauge, run, one_line):
    plain = json.loads((run / "report.json").read_text())
    del plain["verdict"], plain["digest"]
    (run / "report.json").write_text(json.dumps(plain))
    assert "verdict" in one_line(leakgauge("report", "run"))


def test_a_report_that_was_changed_by_hand_is_refused(leakgauge, run, one_line):
    text = (run / "report.json").read_text()
    (run / "report.json").write_text(
        text.replace('"leaks": false', '"leaks": true').replace('"leaks": true', '"leaks": false', 1)
    )
    assert "not what its digest says" in one_line(leakgauge("report", "run"))
