"""Quantiles as a picture: every measured cell a strip, the most exposed record marked, the same file every time."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

import pytest

from leakgauge.lab.reproduce import distribution
from leakgauge.lab.reproduce.measured import Entry
from leakgauge.lab.reproduce.recipe import Cell, Run, Table

AT = (0, 10, 25, 50, 75, 90, 100)


def entry(row: str, at: float, value: float | None) -> Entry:
    return Entry(
        "spread",
        row,
        "LeNet",
        f"psnr_quantile({at:g})",
        None,
        value,
        None,
        None,
        trials=9,
        failed=0,
        seconds=1.0,
        device="cpu",
        version="0",
        commit="0",
        seed=0,
        seeds=1,
        state="untrained",
    )


@pytest.fixture
def table(small_scenario) -> Table:
    figures = {f"psnr_quantile({at})": None for at in AT}
    cells = tuple(Cell(row, "LeNet", Run(small_scenario()), figures) for row in ("bare", "a < b"))
    return Table("spread", "A & B", "as ever.", "A note.", cells, drawn=True)


@pytest.fixture
def entries():
    return [entry(row, at, low + at / 10) for row, low in (("bare", 12.0), ("a < b", 7.0)) for at in AT]


def test_every_measured_cell_is_a_strip_that_names_its_most_exposed_record(table, entries):
    picture = ElementTree.fromstring(distribution.draw(table, entries))
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "LeNet, bare (n = 9)" in texts
    assert "LeNet, a < b (n = 9)" in texts
    assert {"22.0", "17.0"} <= set(texts)
    assert {"5 dB", "25 dB"} <= set(texts), "whole fives around what was measured"
    circles = [float(c.attrib["cx"]) for c in picture.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles[0] > circles[1]


def test_cells_without_a_figure_are_left_out(table, entries):
    lost = [dataclasses.replace(e, value=None) if e.row == "bare" else e for e in entries]
    picture = distribution.draw(table, lost)
    assert "bare" not in picture
    assert "a &lt; b" in picture


def test_one_value_for_all_records_can_be_drawn(table):
    assert "<svg" in distribution.draw(table, [entry("bare", at, 10.0) for at in AT])


def test_nothing_is_drawn_of_other_tables_or_before_anything_was_measured(table, entries, small_recipe, tmp_path):
    assert not distribution.draw(dataclasses.replace(table, drawn=False), entries)
    assert not distribution.draw(table, [])
    recipe = dataclasses.replace(small_recipe, tables=(*small_recipe.tables, table))
    distribution.write(tmp_path, recipe, entries)
    assert [path.name for path in tmp_path.iterdir()] == ["spread.svg"]
    assert (tmp_path / "spread.svg").read_text(encoding="utf-8") == distribution.draw(table, entries)
