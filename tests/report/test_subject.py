"""Whose updates were attacked is told as it was: simulated, given or recorded."""

import dataclasses

import pytest

from leakgauge.recording.own_update import IN_PYTHON
from leakgauge.report import to_html, to_markdown, to_officer, to_summary
from leakgauge.report.subject import counted, kind_of_update, title_of, update_of
from leakgauge.types import Scenario


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({}, "simulated", "of simulated clients"),
        ({"update": "u.pt"}, "given", "u.pt"),
        ({"update": "folder", "round": 2}, "recorded", "folder (round 2 of a recording)"),
        ({"model": IN_PYTHON, "data": IN_PYTHON}, "given", "given in Python"),
    ],
)
def test_where_an_update_comes_from(changes, kind, said):
    scenario = Scenario(**changes)
    assert (kind_of_update(scenario), update_of(scenario)) == (kind, said)


def test_numbers_and_nouns_agree():
    assert [counted("update", n) for n in (0, 1, 2, 1000)] == ["0 updates", "1 update", "2 updates", "1,000 updates"]


def test_every_page_names_what_was_given_in_python_in_words(made):
    scenario = dataclasses.replace(made.report.scenario, model=IN_PYTHON, data=IN_PYTHON)
    report = dataclasses.replace(made.report, scenario=scenario)
    title = "A model and an update given in Python"
    assert title_of(report) == title
    for text in (to_html(report), to_markdown(report), to_officer(report), to_summary(report)):
        assert title in text
    for text in (to_html(report), to_markdown(report)):  # no file names them, so no command repeats the run
        assert "audit_update" in text
        assert "leakgauge audit scenario.toml" not in text
