"""The leaderboard: every defense is on it, every row meets who knows it, and the ranking follows its rules."""

from __future__ import annotations

import dataclasses

import pytest

from leakgauge import catalog
from leakgauge.defenses.dp_sgd import DPSGD
from leakgauge.lab.recipes.leaderboard._board import INFORMED, TRAINING, dominated_by, render, rows_of, standing
from leakgauge.lab.recipes.leaderboard.recipe import DELTA, FIXED, FLOORS, LEFT_OUT, RECIPE, STRENGTHS, Floor, defenses
from leakgauge.lab.recipes.wei2021fedcdp.recipe import plain_epsilon
from leakgauge.lab.reproduce.measured import Entry
from leakgauge.lab.reproduce.recipe import Study, chosen
from leakgauge.setup.plan import parse_chain
from leakgauge.types import UNDEFENDED

MNIST = RECIPE.table("mnist")


def test_every_defense_of_the_house_is_on_the_board_or_left_out_with_a_reason():
    assert STRENGTHS.keys() | LEFT_OUT.keys() <= catalog.find("defenses").keys()
    assert not STRENGTHS.keys() & LEFT_OUT.keys()
    for fixed in FIXED:
        rows = defenses(fixed)
        names = [parse_chain(row)[0].name for row in rows[1:]]
        assert rows[0] == UNDEFENDED
        assert len(set(rows)) == len(rows)
        assert {*names, *LEFT_OUT, *fixed.left_out} == catalog.find("defenses").keys()
        assert all(names.count(name) == 2 for name in STRENGTHS if name not in fixed.left_out)


def test_a_new_defense_has_its_row_at_once(monkeypatch):
    monkeypatch.delitem(STRENGTHS, "sign")
    assert defenses(FIXED[0])[-1] == "sign"


@pytest.mark.parametrize("fixed", FIXED, ids=lambda f: f.data)
def test_accounted_defenses_have_the_least_noise_that_keeps_their_promise(fixed):
    for sigma, epsilon in zip(fixed.sigmas, (8, 1), strict=True):
        promised, less = (plain_epsilon(fixed.q, s, fixed.rounds, DELTA) for s in (sigma, sigma - 0.001))
        assert promised <= epsilon < less
        assert DPSGD(sigma=sigma, q=fixed.q, rounds=fixed.rounds, delta=DELTA).guarantee().epsilon < epsilon


def test_every_defended_row_meets_an_attacker_who_knows_it_and_all_but_key_lock_train():
    for fixed, table in zip(FIXED, RECIPE.tables, strict=True):
        for defense in defenses(fixed)[1:]:
            columns = {cell.column for cell in table.cells if cell.row == defense}
            assert any(c.endswith(INFORMED) for c in columns), defense
            assert (TRAINING in columns) != defense.startswith("key-lock"), defense
            assert {a.partition(":")[0] for a in fixed.attackers} <= columns


def entries(row, recovered=0.0, ssim=0.1, accuracy=0.9, **by_column):
    """All cells of one row of MNIST; `by_column` has other shares, `cpl_informed=0.7`."""
    told = {"recognised": recovered, "ssim": ssim, "ssim_largest": 0.9, "psnr": 10.0, "label_accuracy": 1.0}
    price = {"accuracy": accuracy, "accuracy_lost": 0.95 - accuracy, "slower": 1.5, "bytes_up": 1000.0, "epsilon": None}
    blind = {"recognised_blind": recovered, "ssim_blind": ssim, "psnr_blind": 12.0}
    found = []
    for cell in MNIST.cells:
        if cell.row == row:
            values = blind if row in FLOORS else price if cell.column == TRAINING else dict(told)
            if (share := by_column.get(cell.column.replace(INFORMED, "_informed"))) is not None:
                values["recognised"] = share
            found += [entry(row, cell.column, statistic, values[statistic]) for statistic in cell.reported]
    assert found, row
    return found


def entry(row, column, statistic, value):
    return Entry(
        "mnist",
        row,
        column,
        statistic,
        None,
        value,
        0.0,
        0.5,
        trials=10,
        failed=0,
        seconds=1.0,
        device="cpu",
        version="0",
        commit="abc",
        seed=0,
        seeds=1,
        state="",
    )


def test_the_strongest_attacker_speaks_for_a_row_and_rows_are_ranked_by_leak_then_accuracy():
    measured = [
        *entries("none", 1.0, 0.99, 0.95),
        *entries("mean-image", 0.0, 0.11),
        *entries("prune:share=0.9", 0.0, cpl_informed=0.7),
        *entries("gaussian:std=0.1", 0.0, accuracy=0.5),
        *entries("sign:scale=none", 0.0, accuracy=0.8),
    ]
    rows, missing = rows_of(MNIST, measured)
    order = ["sign:scale=none", "gaussian:std=0.1", "mean-image", "prune:share=0.9", "none"]
    assert [r.defense for r in rows] == order
    assert rows[3].strongest.name == f"cpl{INFORMED}"
    assert rows[3].unaware.recovered == 0
    guess = rows[2].strongest
    assert [standing(r, guess) for r in rows] == ["holds", "holds", "holds", "beaten", "beaten"]
    assert standing(rows[3], dataclasses.replace(guess, recovered=0.8)) == "holds", "a guess is as good"
    assert standing(rows[0], dataclasses.replace(guess, closeness=-0.1)) == "near", "surely closer than a guess"
    assert "random-guess" in missing
    page = render(RECIPE, measured)
    assert f"| 3 | `prune:share=0.9` | 7 of 10 [0%, 50%] | cpl{INFORMED} | 0 of 10 |" in page
    assert "| 2 | `gaussian:std=0.1` |" in page
    assert "holds; dominated by `sign:scale=none` |" in page


def test_a_row_without_all_of_its_attackers_has_no_place_and_its_command_runs_it():
    some = [e for e in entries("prune:share=0.9") if not e.column.endswith(INFORMED)]
    rows, missing = rows_of(MNIST, some)
    assert not rows
    assert "prune:share=0.9" in missing
    page = render(RECIPE, some)
    assert "No row is measured yet." in page
    for table in RECIPE.tables:
        for row in dict.fromkeys(cell.row for cell in table.cells):
            pattern = f"{table.id} | {row} | *"
            assert f'leakgauge lab reproduce leaderboard --cell "{pattern}"' in page
    (found,) = chosen(RECIPE, pattern="mnist | prune:share=0.9 | *")
    assert {c.row for c in found.cells} == {"prune:share=0.9"}


def test_a_row_whose_training_is_missing_has_its_place_and_is_listed_as_not_whole():
    some = [e for e in entries("soteria:share=0.6", cpl_informed=1.0) if e.column != TRAINING]
    rows, missing = rows_of(MNIST, [*entries("mean-image"), *some])
    assert [r.defense for r in rows] == ["mean-image", "soteria:share=0.6"]
    assert "soteria:share=0.6" in missing
    page = render(RECIPE, some)
    assert "| not measured yet |  |  |  |" in page, "neither a price nor a promise"


def test_only_a_better_row_dominates_and_what_is_no_better_than_a_guess_counts_as_equal():
    measured = [
        *entries("mean-image", 0.0, 0.11),
        *entries("none", 1.0, 0.9, 0.95),
        *entries("sign:scale=none", 0.0, 0.05, 0.8),
        *entries("sign:scale=mean", 0.0, 0.09, 0.8),
        *entries("clip:norm=1", 0.0, 0.4, 0.8),
    ]
    rows = {r.defense: r for r in rows_of(MNIST, measured)[0]}
    ranked, guess = tuple(rows.values()), rows["mean-image"].strongest
    assert dominated_by(rows["sign:scale=none"], ranked, guess) is None
    assert dominated_by(rows["sign:scale=mean"], ranked, guess) is None
    assert dominated_by(rows["clip:norm=1"], ranked, guess) is not None
    assert dominated_by(rows["none"], ranked, guess) is None, "nobody is as accurate"
    assert dominated_by(dataclasses.replace(rows["clip:norm=1"], accuracy=None), ranked, guess) is None
    assert dominated_by(dataclasses.replace(rows["clip:norm=1"], epsilon=8.0), ranked, guess) is None, (
        "no other promises"
    )


def test_tables_are_scored_by_their_error():
    adult = RECIPE.table("adult")
    told = {"recognised": 0.2, "mse": 0.003, "mse_smallest": 0.0004, "label_accuracy": 1.0}
    price = {"accuracy": 0.8, "bytes_up": 10.0}
    found = [
        dataclasses.replace(entry(c.row, c.column, s, (price if c.column == TRAINING else told)[s]), table="adult")
        for c in adult.cells
        if c.row == UNDEFENDED
        for s in c.reported
    ]
    ((row,), _) = rows_of(adult, found)
    assert (row.strongest.closeness, row.strongest.worst) == (-0.003, -0.0004)
    assert "| 0.003 | 0.0004 | 100% | 80.0 % |" in render(RECIPE, found)


def test_floors_are_scored_on_the_same_victims_without_the_update():
    floor = Floor(floor="mean-image", model="mlp:hidden=8", data="digits", trials=3)
    found = floor.figures("cpu", None, lambda *_: None)
    assert len(found["recognised_blind"]) == len(found["ssim_blind"]) == 3
    table = dataclasses.replace(floor, data="breast-cancer").figures("cpu", None, lambda *_: None)
    assert len(table["mse_blind"]) == 3
    assert "ssim_blind" not in table
    assert floor.resized(2).size == 2


def test_a_promise_is_stated_for_the_training_that_is_measured():
    for table, fixed in zip(RECIPE.tables, FIXED, strict=True):
        for cell in table.cells:
            if isinstance(cell.run, Study) and cell.column == TRAINING and "sigma" in cell.row:
                (defense,) = parse_chain(cell.row)
                assert defense.rounds == cell.run.measurement.size == fixed.rounds
