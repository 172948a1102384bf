"""What a recipe is made of: runs at several seeds, choosing cells, the cost of it all."""

from __future__ import annotations

import pytest

from leakgauge.errors import BadInput
from leakgauge.lab.recipes import get
from leakgauge.lab.reproduce.recipe import Run, chosen, most_evaluations, scenarios_of
from leakgauge.types import Client


def names(tables):
    return [t.name_of(c) for t in tables for c in t.cells]


def test_base_seeds_are_far_enough_apart_that_no_trial_shares_its_seed(small_scenario):
    runs = Run(small_scenario(trials=100, seed=3), seeds=3).scenarios
    assert [s.seed for s in runs] == [3, 1003, 2003]
    assert len({seed for s in runs for seed in s.seeds}) == 300


def test_a_table_or_a_pattern_chooses_cells(small_recipe):
    assert names(chosen(small_recipe, table="2")) == ["2 | 50 % | plain", "2 | 50 % | adaptive"]
    assert names(chosen(small_recipe, pattern="* | linear | *")) == ["1 | linear | digits", "1 | linear | faces"]


def test_quick_takes_only_marked_cells_with_their_few_victims(small_recipe):
    (table,) = chosen(small_recipe, quick=True)
    (cell,) = table.cells
    assert (cell.run.scenario.trials, cell.run.seeds) == (1, 1)


def test_trials_and_seeds_resize_every_cell(small_recipe):
    for table in chosen(small_recipe, trials=7, seeds=2):
        assert all(cell.run.victims == 14 for cell in table.cells)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"table": "3"}, "table of small must be one of 1, 2, got '3'"),
        ({"pattern": "1 | linear | digit"}, "did you mean '1 | linear | digits'?"),
        ({"table": "2", "quick": True}, "--quick must be used with cells marked quick"),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest_name(small_recipe, how, said):
    with pytest.raises(BadInput) as caught:
        chosen(small_recipe, **how)
    assert said in str(caught.value)


def test_cells_that_share_a_run_need_it_once(small_recipe):
    assert len(scenarios_of(small_recipe.tables)) == 4  # two seeds, faces, and one pruned run for two cells


def test_cost_counts_inner_iterations_variants_and_unrolled_steps(small_scenario):
    assert most_evaluations(small_scenario(attacks=("cpl:steps=5",))) == 2 * 5 * 20
    assert most_evaluations(small_scenario(attacks=("cpl:steps=5",), defenses=("prune",))) == 2 * 5 * 20 * 2
    unrolled = small_scenario(attacks=("inverting-gradients:steps=5",), local=Client(kind="fedavg", epochs=3, lr=0.1))
    assert most_evaluations(unrolled) == 2 * 5 * 3


def test_size_is_for_cells_without_victims_and_trials_for_those_with():
    recipe = get("ren2022fedkl")
    (training,) = chosen(recipe, pattern="5.1-constant-rate | ResNet-20, CIFAR-10 | no lock", size=3, trials=7)
    assert [c.run.size for c in training.cells] == [3]
    (attacked,) = chosen(recipe, pattern="5.4 | no lock | MNIST", size=3, trials=7)
    assert [c.run.victims for c in attacked.cells] == [7]
