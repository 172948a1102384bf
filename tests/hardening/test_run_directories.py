"""A run directory from somebody else: nothing that its files name is read, written or removed outside it."""

import sqlite3
from contextlib import closing

import pytest
import torch

from leakgauge.sealed import sealed
from leakgauge.store import Store, Trial
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
    store.save_truth(torch.zeros(1, 1, 4), "a stage")
    store.save_cells_of_report({"dlg | none | plain": "abc"}, "a stage")
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
    (run / "cells.json").write_bytes(sealed("a stage", {"dlg | none | plain": key}))
    pictures = Store(run, make=False).pictures()
    assert pictures is None or not pictures.recovered
