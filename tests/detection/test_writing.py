"""Table, numbers and plot agree and are written whole."""

import json

from leakgauge.detection.arms_race import Point
from leakgauge.detection.rates import Row
from leakgauge.detection.writing import Study, markdown, plot, write_study
from leakgauge.inspect.thresholds import Thresholds
from leakgauge.types import Interval

ROW = Row("mkor, naive", True, 25, Interval(1.0, 0.86, 1.0), Interval(0.96, 0.8, 1.0))
POINTS = (Point(0.0, 300.0, 0, 2.0, "copy-kernels", 22.0, 0.8), Point(0.01, 300.0, 0, 0.5, "none", 12.0, 0.3))
STUDY = Study(
    (ROW,), (ROW,), Thresholds(), 50, 3, POINTS, {"device": "cpu", "leakgauge": "0", "commit": "abc"}
)  # fmt: skip


def test_the_table_has_a_row_per_family_and_per_strength():
    text = markdown(STUDY)
    assert "| mkor, naive | 25 | 100 % [86, 100] | 96 % [80, 100] |" in text
    assert "| 300 | 0.01 | 0.50 | none | 12.0 | 0.30 |" in text
    assert "seed 3" in text


def test_the_same_points_give_the_same_plot():
    assert plot(POINTS) == plot(POINTS)
    assert plot(POINTS).startswith(b"<?xml")


def test_files_are_written(tmp_path):
    files = write_study(STUDY, tmp_path / "new")
    assert sorted(p.name for p in files.values()) == ["README.md", "arms-race.svg", "measured.json"]
    assert json.loads(files["measured"].read_text())["rows"][0]["models"] == 25
