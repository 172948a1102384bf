"""What was not run is said once per reason."""

import dataclasses

from leakgauge.report.html import to_html
from leakgauge.report.markdown import to_markdown
from leakgauge.report.not_run import skipped_lines
from leakgauge.types import Skipped

SKIPPED = (
    Skipped("linear", "all", False, "not applicable: no linear layer"),
    Skipped("peeling", "all", False, "not applicable: no linear layer"),
    Skipped("idlg", "prune", True, "not needed: cpl recovered every record"),
)


def test_one_line_for_each_reason(made):
    report = dataclasses.replace(made.report, skipped=SKIPPED)
    assert skipped_lines(report) == [
        "not run: linear, peeling: not applicable: no linear layer",
        "not run against prune: idlg (adaptive): not needed: cpl recovered every record",
    ]


def test_page_and_text_tell_it(made):
    report = dataclasses.replace(made.report, skipped=SKIPPED)
    for text in (to_html(report, made.pictures), to_markdown(report)):
        assert "What was not run" in text
        assert "not needed: cpl" in text
    assert "What was not run" not in to_markdown(made.report)
