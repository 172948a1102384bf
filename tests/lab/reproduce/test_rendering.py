"""README.md of a recipe: reported beside measured, and honest about what was not run."""

from __future__ import annotations

import dataclasses

import pytest

from leakgauge.lab.reproduce.measured import Entry
from leakgauge.lab.reproduce.rendering import render


@pytest.fixture
def entry():
    return Entry(
        "1",
        "linear",
        "digits",
        "psnr",
        30.0,
        31.5,
        29.25,
        33.0,
        trials=4,
        failed=1,
        seconds=0.1,
        device="cpu",
        version="0.1.0",
        commit="abc",
        seed=0,
        seeds=1,
        state="untrained",
    )


def test_reported_and_measured_stand_in_one_cell_with_interval_and_sample(small_recipe, entry):
    page = render(small_recipe, [entry])
    assert "| linear | PSNR, dB: 30.00 → 31.50 [29.25, 33.00]<br>n = 4, 1 failed |" in page


def test_a_cell_that_was_not_run_shows_the_papers_figure_alone(small_recipe, entry):
    assert "| PSNR, dB: 20.00 |" in render(small_recipe, [entry])


def test_a_trained_network_is_told(small_recipe, entry):
    trained = dataclasses.replace(entry, failed=0, state="after 20 rounds of training, test accuracy 0.50")
    assert "<br>n = 4; after 20 rounds of training, test accuracy 0.50 |" in render(small_recipe, [trained])


def test_head_says_what_was_run_where(small_recipe, entry):
    page = render(small_recipe, [entry])
    assert page.startswith("<!-- Written by `leakgauge lab reproduce`")
    assert "Measured: 1 of 4 cells, 4 victims each, on cpu, with leakgauge 0.1.0 (commit abc)." in page
    assert "Measured: none of 4 cells." in render(small_recipe, [])


def test_every_table_has_its_convention_and_note(small_recipe):
    page = render(small_recipe, [])
    for table in small_recipe.tables:
        assert f"## Table {table.id}: {table.title}" in page
        assert table.note in page
    assert page.count("Convention: as ever") == 2
    assert small_recipe.note in page


def test_a_recipe_may_show_its_tables_in_its_own_way(small_recipe, entry):
    ranked = dataclasses.replace(small_recipe, board=lambda recipe, entries: f"{recipe.name}: {len(entries)} figures")
    page = render(ranked, [entry])
    assert page.endswith("small: 1 figures\n")
    assert "the paper's figure → ours" not in page
    assert "Measured: 1 of 4 cells" in page


def test_a_papers_figure_is_shown_where_the_run_did_not_keep_ours(small_recipe, entry):
    table = small_recipe.tables[0]
    cell = dataclasses.replace(table.cells[0], reported={"psnr": 30.0, "ssim": 0.9})
    recipe = dataclasses.replace(small_recipe, tables=(dataclasses.replace(table, cells=(cell,)),))
    page = render(recipe, [entry])
    assert "SSIM: 0.900<br>n = 4, 1 failed" in page
    assert "A line without an arrow was not kept when its cell was measured." in page
    page = render(recipe, [entry, dataclasses.replace(entry, statistic="ssim", trials=5)])
    assert "n = 4, 1 failed (PSNR, dB)<br>n = 5, 1 failed (SSIM)" in page
    assert "A line without an arrow" not in page


def test_a_papers_figure_is_not_called_a_table(small_recipe):
    first = dataclasses.replace(small_recipe.tables[0], id="Figure 8")
    page = render(dataclasses.replace(small_recipe, tables=(first, *small_recipe.tables[1:])), [])
    assert "## Figure 8: bare updates" in page
    assert "## Table 2: pruned updates" in page
