"""Files appear whole or not at all, and what stops them is said in one line."""

import errno
import os

import pytest

from leakgauge.errors import BadInput
from leakgauge.report import FORMATS, from_json, to_html, write, write_comparison


def test_writes_all_formats(made, tmp_path):
    paths = write(made.report, made.pictures, tmp_path / "new" / "folder")
    assert list(paths) == list(FORMATS)
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == sorted(FORMATS.values())
    assert from_json(paths["json"].read_text()) == made.report
    assert paths["html"].read_text(encoding="utf-8") == to_html(made.report, made.pictures)


def test_writes_only_what_is_asked(made, tmp_path):
    write(made.report, None, tmp_path, formats=["json"])
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_replaces_an_older_report(made, tmp_path):
    (tmp_path / "report.md").write_text("old")
    write(made.report, None, tmp_path, ("markdown",))
    assert "# Leakage audit" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_an_unknown_format_is_refused_before_anything_is_written(made, tmp_path):
    with pytest.raises(BadInput, match="did you mean 'html'"):
        write(made.report, None, tmp_path / "out", ("json", "htm"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_full_disk_leaves_no_file_and_keeps_the_old_one(made, tmp_path, monkeypatch, broken):
    (tmp_path / "report.json").write_text("old")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(BadInput, match=r"report\.json.*No space left on device; free some disk space") as caught:
        write(made.report, None, tmp_path, ("json",))
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
    assert (tmp_path / "report.json").read_text() == "old"


def test_an_interruption_leaves_no_file(made, tmp_path, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write(made.report, None, tmp_path, ("json",))
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_folder_should_be_is_refused(made, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(BadInput, match="choose another --out"):
        write(made.report, None, tmp_path / "out")


def test_a_folder_where_the_file_should_be_is_refused(made, tmp_path):
    (tmp_path / "report.json").mkdir()
    with pytest.raises(BadInput, match=r"report\.json"):
        write(made.report, None, tmp_path, ("json",))
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_name_that_is_no_text_is_still_written(make, tmp_path):
    made = make(model="model-\udcff")
    assert set(write(made.report, None, tmp_path)) == set(FORMATS)


def test_a_comparison_is_one_page_in_a_folder_that_is_made(made, tmp_path):
    path = write_comparison(made.report, made.report, ("a", "b"), tmp_path / "new")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["comparison.html"]
    assert "<h1>a and b</h1>" in path.read_text(encoding="utf-8")
