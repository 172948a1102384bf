"""measured.json: what is there, in the recipe's order, and never spoilt by a quick look."""

from __future__ import annotations

import dataclasses

import pytest

import leakgauge
from leakgauge.errors import BadInput
from leakgauge.lab.reproduce.measured import entries_of, merged, read, write
from leakgauge.lab.reproduce.recipe import chosen, scenarios_of
from leakgauge.lab.reproduce.running import run_all


@pytest.fixture
def entries(small_recipe, tmp_path):
    run_all(scenarios_of(small_recipe.tables), tmp_path / "runs", data_root=tmp_path / "no-data")
    return entries_of(small_recipe.tables, tmp_path / "runs")


def test_one_entry_per_statistic_of_every_cell_that_was_run(entries):
    assert [e.place for e in entries] == [
        ("1", "linear", "digits", "psnr"),
        ("1", "linear", "digits", "recognised"),
        ("2", "50 %", "plain", "psnr"),
        ("2", "50 %", "adaptive", "psnr"),
    ]
    first = entries[0]
    assert (first.trials, first.failed, first.seed, first.seeds, first.reported) == (4, 0, 0, 2, 30.0)
    assert first.low <= first.value <= first.high
    assert (first.device, first.version, first.state) == ("cpu", leakgauge.__version__, "untrained")


def test_the_file_is_read_back_exactly(entries, small_recipe, tmp_path):
    assert read(tmp_path) == []
    write(tmp_path, small_recipe, entries)
    assert read(tmp_path) == entries


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "measured.json").write_text('{"cells": [{"table": "1"}]}')
    with pytest.raises(BadInput, match="written by leakgauge lab reproduce"):
        read(tmp_path)


def test_old_cells_are_kept_and_smaller_samples_replace_nothing(entries, small_recipe):
    old, new = entries[0], dataclasses.replace(entries[0], trials=1, value=0.0)
    assert merged(entries, [], small_recipe) == entries
    assert merged([old], [new], small_recipe) == [old]
    assert merged([new], [old], small_recipe) == [old]


def test_order_and_reported_figures_are_the_recipes(entries, small_recipe):
    stray = dataclasses.replace(entries[0], row="gone")
    changed = dataclasses.replace(entries[0], reported=99.0)
    assert merged([stray, *entries[:0:-1], changed], [], small_recipe) == entries


def test_a_quick_look_reads_its_own_runs(small_recipe, tmp_path):
    quick = chosen(small_recipe, quick=True)
    run_all(scenarios_of(quick), tmp_path)
    assert entries_of(small_recipe.tables, tmp_path) == []
    assert [e.trials for e in entries_of(quick, tmp_path)] == [1, 1]
