"""JSON: nothing is lost on the way out and back, and what is not a report is refused in one line."""

import dataclasses
import json

import pytest

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.report import from_json, to_json
from leakgauge.types import GateResult, Interval


def test_round_trip_gives_back_an_equal_report(made):
    assert from_json(to_json(made.report)) == made.report


def test_round_trip_keeps_awkward_text_and_optional_parts(made):
    report = dataclasses.replace(
        made.report,
        scenario=dataclasses.replace(made.report.scenario, model='ü"\\\n\udcff', weights="w.pt"),
        verdict=dataclasses.replace(made.report.verdict, gate=GateResult("ssim", 0.5, False, "no")),
        interrupted=True,
    )
    assert from_json(to_json(report)) == report


def test_keys_that_others_rely_on_are_there(made):
    plain = json.loads(to_json(made.report))
    assert plain["schema"] == 2
    assert {"scenario", "findings", "summary", "verdict", "environment"} <= plain.keys()
    assert plain["summary"][0]["psnr_mean_per_image"].keys() == {"value", "low", "high"}


def test_what_was_spent_is_in_the_row_as_median_and_quartiles(made):
    row = json.loads(to_json(made.report))["summary"][0]
    assert row["steps_median"] == {"value": 300.0, "low": 300.0, "high": 300.0}
    assert row["evaluations_median"] == {"value": 6000.0, "low": 5990.0, "high": 6010.5}
    assert row["seconds"] == 3.75


def test_a_report_written_before_steps_were_counted_still_loads(made):
    plain = json.loads(to_json(made.report))
    del plain["digest"]
    for row in plain["summary"]:
        del row["steps_median"], row["evaluations_median"]
    nothing = Interval(None, None, None)
    rows = tuple(
        dataclasses.replace(row, steps_median=nothing, evaluations_median=nothing) for row in made.report.summary
    )
    assert from_json(json.dumps(plain)) == dataclasses.replace(made.report, summary=rows)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '{"schema": 1}', '{"schema": 9}', '{"a": NaN}'])
def test_malformed_json_is_refused_in_one_line(text):
    with pytest.raises(BadInput) as caught:
        from_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"), [("findings", [{"attack": 1}]), ("data", []), ("summary", [7]), ("exposure", [3])]
)
def test_a_wrong_part_is_refused_in_one_line(made, key, value):
    plain = json.loads(to_json(made.report)) | {key: value}
    with pytest.raises(BadInput, match="report JSON"):
        from_json(json.dumps(plain))


def test_a_number_that_json_cannot_hold_is_named(made):
    finding = dataclasses.replace(made.report.findings[0], objective=float("inf"))
    broken = dataclasses.replace(made.report, findings=(finding, *made.report.findings[1:]))
    with pytest.raises(LeakgaugeError, match=r"report\.findings\[0\]\.objective = inf"):
        to_json(broken)
