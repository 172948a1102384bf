"""The index: a trial belongs to the file of whoever was first, and a damaged index is named and made anew."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from leakgauge.errors import BadInput
from leakgauge.execution.index import TrialIndex


def nothing(_):
    return iter(())


@pytest.fixture
def index(tmp_path):
    return TrialIndex(tmp_path / "index.sqlite", nothing)


def test_trials_are_held_by_cell(index):
    index.add("a", [0, 1], "one")
    index.add("b", [1], "two")
    assert index.held("a") == {0: "one", 1: "one"}
    assert index.held("b") == {1: "two"}
    assert index.held("c") == {}


def test_who_finishes_a_trial_first_has_it(index):
    index.add("a", [0, 1], "one")
    index.add("a", [1, 2], "two")
    assert index.held("a") == {0: "one", 1: "one", 2: "two"}


def test_files_and_cells_can_be_dropped(index):
    index.add("a", [0], "one")
    index.add("a", [1], "two")
    index.add("b", [0], "three")
    index.drop_file("one")
    assert index.held("a") == {1: "two"}
    index.drop_cell("a")
    assert index.held("a") == {}
    assert index.held("b") == {0: "three"}


def test_it_is_in_wal_mode_so_that_readers_and_writers_do_not_wait_for_one_another(index):
    with closing(sqlite3.connect(index.path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_files_that_nobody_entered_are_taken_in_when_it_is_opened(tmp_path):
    asked = []

    def contents(known):
        asked.append(known)
        return iter([("late", "a", [4, 5])] if "late" not in known else [])

    TrialIndex(tmp_path / "index.sqlite", contents)
    again = TrialIndex(tmp_path / "index.sqlite", contents)
    assert again.held("a") == {4: "late", 5: "late"}
    assert asked == [set(), {"late"}]


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"this is no database, and long enough to be taken for one " * 40,
        lambda b: b[:1000],
        lambda b: b[:4096],
        lambda b: b[:100] + b"\xff" * (len(b) - 100),
        lambda b: b.replace(b"TABLE", b"\xffTABL"),
        lambda b: b"",
    ],
    ids=["text", "cut in a page", "cut behind a page", "overwritten", "a word that is no text", "emptied"],
)
def test_a_damaged_index_is_named_put_aside_and_made_anew_from_the_files(tmp_path, damage):
    path = tmp_path / "index.sqlite"
    TrialIndex(path, nothing).add("a", [7], "file")
    content = damage(path.read_bytes())
    path.write_bytes(content)
    told: list[str] = []
    again = TrialIndex(path, lambda known: iter([] if known else [("file", "a", [7])]), told.append)
    assert again.held("a") == {7: "file"}
    if content:  # an empty file is a database without tables
        assert len(told) == 1
        assert f"{path} is damaged" in told[0]
        assert path.with_name("index.sqlite.damaged").read_bytes() == content


def test_a_table_that_is_not_ours_is_put_aside(tmp_path):
    path = tmp_path / "index.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE trials (something TEXT)")
    told: list[str] = []
    assert TrialIndex(path, nothing, told.append).held("a") == {}
    assert "no such column" in told[0]


def test_an_index_that_is_damaged_while_it_is_used_is_mended(tmp_path):
    path = tmp_path / "index.sqlite"
    told: list[str] = []
    index = TrialIndex(path, lambda known: iter([] if known else [("old", "a", [0])]), told.append)
    path.write_bytes(b"overwritten by somebody else, and long enough to be taken for a file of ours " * 20)
    index.add("a", [1], "new")
    assert index.held("a") == {0: "old", 1: "new"}
    assert len(told) == 1


def test_a_full_disk_is_one_clear_line(index, monkeypatch):
    def full(*_, **__):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(BadInput, match=r"index.sqlite' must be writable, got database or disk is full; free some disk"):
        index.add("a", [0], "one")


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(BadInput, match="must be writable"):
        TrialIndex(tmp_path / "nowhere" / "index.sqlite", nothing)


HAMMER = """
import sys
from pathlib import Path
from leakgauge.execution.index import TrialIndex
index = TrialIndex(Path(sys.argv[1]), lambda _: iter(()))
for trial in range(100):
    index.add("a", [trial], sys.argv[2])
"""


def test_two_processes_may_write_at_once(tmp_path):
    path = tmp_path / "index.sqlite"
    both = [subprocess.Popen([sys.executable, "-c", HAMMER, path, who]) for who in ("one", "two")]
    assert [process.wait() for process in both] == [0, 0]
    held = TrialIndex(path, nothing).held("a")
    assert sorted(held) == list(range(100))
    assert set(held.values()) <= {"one", "two"}
