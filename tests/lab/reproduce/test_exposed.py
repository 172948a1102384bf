"""The most exposed pictures: kept with each run, shown on a sheet, and not replaced by a smaller look."""

from __future__ import annotations

import dataclasses
import io

import pytest
from PIL import Image

from leakgauge.lab.reproduce import exposed
from leakgauge.lab.reproduce.measured import entries_of
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Run, Table
from leakgauge.lab.reproduce.running import load, run_all


@pytest.fixture
def drawn(small_scenario) -> Table:
    run = Run(small_scenario(trials=4))
    return Table("spread", "A", "as ever.", "A note.", (Cell("bare", "digits", run, {"psnr": None}),), drawn=True)


@pytest.fixture
def recipe(small_recipe, drawn) -> Recipe:
    return dataclasses.replace(small_recipe, tables=(drawn,))


def smaller(table: Table) -> Table:
    cells = tuple(dataclasses.replace(c, run=c.run.resized(2, 1)) for c in table.cells)
    return dataclasses.replace(table, cells=cells)


def test_a_run_keeps_the_pictures_that_were_recovered_best(drawn, tmp_path):
    run_all(drawn.cells[0].run.pieces, tmp_path, device="cpu")
    result = load(drawn.cells[0].run.pieces[0], tmp_path)
    shown = [each["psnr"] for each in result.exposed]
    assert shown == sorted((f.records[0]["psnr"] for f in result.findings), reverse=True)[:3]
    assert result.exposed[0]["attack"] == "linear"


def test_pictures_come_back_as_they_were(drawn, tmp_path):
    run_all(drawn.cells[0].run.pieces, tmp_path, device="cpu")
    first = load(drawn.cells[0].run.pieces[0], tmp_path).exposed[0]
    true, recovered = (exposed._picture(first[name]) for name in ("true", "recovered"))
    assert true.size == (64, 64)
    assert true.tobytes() == recovered.tobytes(), "the closed form is exact to the grey level"


def test_a_smaller_look_does_not_replace_the_sheet(recipe, drawn, tmp_path):
    few, full = smaller(drawn), drawn
    run_all(few.cells[0].run.pieces, tmp_path / "few", device="cpu")
    run_all(full.cells[0].run.pieces, tmp_path / "full", device="cpu")
    path = tmp_path / exposed.file_of(drawn)
    exposed.write(tmp_path, recipe, [few], entries_of([few], tmp_path / "few"), tmp_path / "few")
    first = path.read_bytes()
    assert Image.open(io.BytesIO(first)).width < 300 + 3 * 152
    measured = entries_of([full], tmp_path / "full")
    exposed.write(tmp_path, recipe, [full], measured, tmp_path / "full")
    second = path.read_bytes()
    assert second != first
    exposed.write(tmp_path, recipe, [few], measured, tmp_path / "few")
    assert path.read_bytes() == second


def test_nothing_is_written_without_runs(recipe, drawn, tmp_path):
    exposed.write(tmp_path, recipe, [drawn], [], tmp_path / "none")
    assert not list(tmp_path.iterdir())
