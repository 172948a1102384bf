"""A run directory from somebody else: nothing that its files name is read, written or removed outside it."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.execution.store import Store, Trial
from leakgauge.reading.sealed import sealed
from leakgauge.types import Finding

NAMES = (
    "../../precious",
    "../precious.safetensors",
    "/tmp/leakgauge-precious",
    "a/../../../precious",
    "a\0b",
    "..",
    "",
)


@pytest.fixture
def run(tmp_path):
    store = Store(tmp_path / "run")
    store.save("abc", [Trial(Finding("dlg", "none", False, 0, 0, {}), torch.zeros(1, 4))])
    store.save_truth(torch.zeros(1, 1, 4), "a setup")
    store.save_cells_of_report({"dlg | none | plain": "abc"}, "a setup")
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "run/precious.safetensors").write_text("kept")
    return tmp_path / "run"


@pytest.mark.parametrize("name", NAMES)
def test_an_index_that_names_other_files_removes_none_and_is_made_anew(run, name):
    with closing(sqlite3.connect(run / "index.sqlite")) as db, db:
        db.execute("UPDATE trials SET file = ?", (name,))
    told = []
    store = Store(run, notice=told.append)
    assert list(store.load("abc")) == [0]
    assert len(told) == 1
    assert "index.sqlite is damaged" in told[0]
    assert (run.parent / "precious").read_text() == "kept"
    assert (run / "precious.safetensors").read_text() == "kept"


@pytest.mark.parametrize("key", [*NAMES, "**/*", {}, 3.5, None])
def test_a_list_of_cells_that_names_other_files_gives_no_pictures(run, key):
    assert Store(run, make=False).pictures().recovered.keys() == {"dlg | none | plain"}
    (run / "cells.json").write_bytes(sealed("a setup", {"dlg | none | plain": key}))
    pictures = Store(run, make=False).pictures()
    assert pictures is None or not pictures.recovered


@pytest.mark.parametrize("name", ["report.json", "cells.json", "truth.safetensors"])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(run, name, tmp_path):
    """In a process of its own, which would be waited for in vain."""
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    words = [sys.executable, "-m", "leakgauge", "report", str(run), "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_link_in_the_place_of_the_index_is_not_followed(run):
    (run / "index.sqlite").unlink()
    (run / "index.sqlite").symlink_to(run.parent / "precious")
    with pytest.raises(BadInput, match="is a link"):
        Store(run)
    assert (run.parent / "precious").read_text() == "kept"


def test_private_leftovers_go_with_the_next_run(run):
    left = [run / ".truth.safetensors.0a.part", run / "cells/.abc.00000.0b.safetensors.0c.part"]
    for part in left:
        part.write_text("private")
    Store(run)
    assert not any(part.exists() for part in left)
