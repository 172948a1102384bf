"""A federated training fills cells as an attack does: once, kept, at a smaller size under --quick."""

from __future__ import annotations

import dataclasses

import pytest

from leakgauge.lab.reproduce import running
from leakgauge.lab.reproduce.measured import entries_of, merged
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Study, Table, chosen, pieces_of, scenarios_of
from leakgauge.lab.reproduce.rendering import render
from leakgauge.lab.reproduce.running import load, run_all, run_one
from leakgauge.lab.reproduce.training import FederatedTraining
from leakgauge.types import Client, Federation, Partition

PRIVATE = "dp-sgd:sigma=1.0,q=0.5,rounds=3"
TRAINING = FederatedTraining(
    model="mlp:hidden=8",
    data="digits",
    partition=Partition(kind="iid", clients=8),
    federation=Federation(rounds=3, per_round=4),
)
DEFENDED = dataclasses.replace(TRAINING, defense=PRIVATE)


@pytest.fixture
def recipe():
    figures = {"accuracy": 0.9, "slower": 1.1, "bytes_up": None, "epsilon": None}
    cells = (
        Cell("none", "digits", Study(TRAINING), {"accuracy": None, "round_ms": None}),
        Cell("DP-SGD", "digits", Study(DEFENDED, seeds=2), figures, quick=2),
        Cell("DP-SGD, again", "digits", Study(DEFENDED, seeds=2), {"accuracy": None}),
    )
    return Recipe("small", "Trainings", "Nobody 2020", "Made up.", (Table("1", "cost", "as ever.", "A note.", cells),))


def test_a_defended_federation_is_compared_with_the_bare_one_beside_it():
    figures = run_one(DEFENDED, "cpu", None).figures
    assert len(figures["round_ms"]) == len(figures["slower"]) == 2, "the first round sets everything up"
    assert all(ratio > 0 for ratio in figures["slower"])
    (epsilon,) = figures["epsilon"]
    assert epsilon > 0
    bare = run_one(TRAINING, "cpu", None).figures
    assert bare.keys() == {"accuracy", "round_ms", "bytes_up"}
    assert figures["accuracy_lost"][0] == pytest.approx(bare["accuracy"][0] - figures["accuracy"][0])


def test_it_is_kept_shared_by_cells_and_not_made_again(recipe, tmp_path, monkeypatch):
    pieces = pieces_of(recipe.tables)
    assert [p.seed for p in pieces] == [0, 0, 1000], "two cells read the same run"
    assert scenarios_of(recipe.tables) == ()
    assert run_all(pieces, tmp_path) == {}
    before = [load(piece, tmp_path) for piece in pieces]
    monkeypatch.setattr(running, "run_one", lambda *_: pytest.fail("ran again"))
    run_all(pieces, tmp_path)
    assert [load(piece, tmp_path) for piece in pieces] == before


def test_what_cannot_train_is_told(tmp_path):
    missing = dataclasses.replace(TRAINING, data="lfw")
    unfit = dataclasses.replace(TRAINING, federation=Federation(rounds=3, per_round=9))
    refused = run_all([missing, unfit], tmp_path / "runs", data_root=tmp_path / "no-data")
    assert set(refused) == {missing, unfit}


def test_every_setting_is_part_of_the_key(tmp_path):
    others = (
        dataclasses.replace(TRAINING, local=Client(kind="fedavg", epochs=2)),
        dataclasses.replace(TRAINING, defense="sign"),
        dataclasses.replace(TRAINING, seed=1),
    )
    assert len({running._path(t, tmp_path) for t in (TRAINING, *others)}) == 4


def test_quick_has_fewer_rounds_and_replaces_nothing(recipe, tmp_path):
    (table,) = chosen(recipe, quick=True, trials=7)
    (cell,) = table.cells
    assert (cell.run.measurement.size, cell.run.seeds) == (2, 1)
    run_all(pieces_of([table]), tmp_path)
    small = entries_of([table], tmp_path)
    assert {e.trials for e in small} == {2}
    large = [dataclasses.replace(e, trials=6) for e in small]
    assert merged(large, small, recipe) == large


def test_seeds_are_asked_for_as_in_other_runs(recipe):
    (table,) = chosen(recipe, seeds=3)
    assert all(len(cell.run.pieces) == 3 for cell in table.cells)


def test_the_page_says_rounds_and_how_times_are_to_be_read(recipe, tmp_path):
    run_all(pieces_of(recipe.tables), tmp_path)
    entries = entries_of(recipe.tables, tmp_path)
    page = render(recipe, entries)
    assert "n = 6 rounds; 4 of 8 clients in each" in page
    assert "accuracy: 0.900 →" in page
    assert "Round times are medians" in page
    assert "Measured: 3 of 3 cells, on cpu" in page
    assert "victims each" not in page
