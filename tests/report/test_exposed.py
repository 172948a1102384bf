"""Records by exposure: the most exposed first, and how far the estimate agrees with what was recovered."""

import dataclasses

from leakgauge.report import to_html, to_markdown
from leakgauge.report.exposed import exposed
from leakgauge.types import Exposure


def with_exposure(made, *found: Exposure):
    return dataclasses.replace(made.report, exposure=found)


def test_the_most_exposed_come_first_with_their_place(made):
    (group,) = exposed(with_exposure(made, Exposure("none", ((0.1, -0.25), (0.9, 0.5)), 0.4)))
    assert group.records[0] == ("trial 1, record 0", "0.90")
    assert group.records[-1] == ("trial 0, record 1", "−0.25")
    assert group.agreement.endswith("recovered: +0.40.")


def test_equal_exposure_is_no_order(made):
    assert exposed(with_exposure(made, Exposure("none", ((1.0,), (1.0,)), None))) == []


def test_page_and_text_tell_it(made):
    report = with_exposure(made, Exposure("none", ((0.1, 0.3),), None))
    for text in (to_html(report), to_markdown(report)):
        assert "Records by exposure" in text
        assert "Too few records, or too little difference between them, to compare it with what was recovered." in text
    assert "Records by exposure" not in to_html(made.report)
