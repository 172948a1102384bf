"""Table, numbers and plot agree and are written whole."""

import json

from leakgauge.checks.thresholds import Thresholds
from leakgauge.lab.detection.arms_race import Point
from leakgauge.lab.detection.rates import CheckRow, Row
from leakgauge.lab.detection.writing import Study, markdown, plot, write_study
from leakgauge.types import Interval

ROW = Row("mkor, naive", True, 25, Interval(1.0, 0.86, 1.0), Interval(0.96, 0.8, 1.0))
CHECKS = CheckRow(
    "imprint",
    4,
    {
        "mostly-zeros": Interval(0.25, 0.01, 0.81),
        "oversized-dense": Interval(1.0, 0.4, 1.0),
        "dominated-gradients": Interval(0.0, 0.0, 0.6),
        "equal-outgoing": Interval(0.5, 0.07, 0.93),
        "drift": Interval(0.0, 0.0, 0.6),
    },
)
POINTS = (Point(0.0, 300.0, 0, 2.0, "copy-kernels", 22.0, 0.8), Point(0.01, 300.0, 0, 0.5, "none", 12.0, 0.3))
STUDY = Study(
    (ROW,), (ROW,), Thresholds(), 50, 3, POINTS, {"device": "cpu", "leakgauge": "0", "commit": "abc"}, (CHECKS,)
)


def test_the_table_has_a_row_per_family_and_per_strength():
    text = markdown(STUDY)
    assert "| mkor, naive | 25 | 100 % [86, 100] | 96 % [80, 100] |" in text
    assert "| 300 | 0.01 | 0.50 | none | 12.0 | 0.30 |" in text
    assert "seed 3" in text


def test_each_server_has_a_row_of_checks_and_silent_checks_of_ours_are_left_out():
    text = markdown(STUDY)
    assert "| *mostly-zeros* | *oversized-dense* | *dominated-gradients* | equal-outgoing |" in text
    assert "| imprint | 4 | 25 % [1, 81] | 100 % [40, 100] | 0 % [0, 60] | 50 % |" in text


def test_the_same_points_give_the_same_plot():
    assert plot(POINTS) == plot(POINTS)
    assert plot(POINTS).startswith(b"<?xml")


def test_files_are_written(tmp_path):
    files = write_study(STUDY, tmp_path / "new")
    assert sorted(p.name for p in files.values()) == ["README.md", "arms-race.svg", "measured.json"]
    assert json.loads(files["measured"].read_text())["rows"][0]["models"] == 25
