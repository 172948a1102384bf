"""What holds for every recipe in the house, found by walking the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.lab import recipes
from leakgauge.lab.reproduce import distribution, exposed, measured, rendering
from leakgauge.lab.reproduce.figures import FIGURES
from leakgauge.lab.reproduce.recipe import Run, Study, chosen, scenarios_of
from leakgauge.lab.reproduce.running import describe
from leakgauge.lab.reproduce.statistics import parse
from leakgauge.matching.gradient_matching import GradientMatching
from leakgauge.models import load_model
from leakgauge.setup.plan import plan
from leakgauge.types import DataSpec

FOLDER = Path(__file__).parents[3] / "results"
RECIPES = recipes.find()
OF_SUCCESS = ("asr", "iterations")


@pytest.fixture(params=RECIPES)
def recipe(request):
    return RECIPES[request.param]


def attacked(recipe):
    """The cells with victims, each with its table."""
    return [(table, cell) for table in recipe.tables for cell in table.cells if isinstance(cell.run, Run)]


def test_recipes_are_found_and_named_after_their_folder():
    assert RECIPES
    code = Path(recipes.__file__).parent
    assert all(recipe.name == name and (code / name / "recipe.py").is_file() for name, recipe in RECIPES.items())
    with pytest.raises(BadInput, match="did you mean 'wei2020cpl'"):
        recipes.get("wei2020")


def test_committed_readme_is_what_the_committed_measurements_give(recipe):
    """If this fails: `leakgauge lab reproduce NAME --out results/NAME --render`."""
    folder = FOLDER / recipe.name
    entries = measured.read(folder)
    assert entries, "measure at least the quick cells"
    assert measured.merged(entries, [], recipe) == entries
    assert (folder / "README.md").read_text(encoding="utf-8") == rendering.render(recipe, entries)
    for table in recipe.tables:
        if picture := distribution.draw(table, entries):
            assert (folder / distribution.file_of(table)).read_text(encoding="utf-8") == picture
            assert (folder / exposed.file_of(table)).is_file()


def test_places_are_unique_and_every_table_says_how_to_read_it(recipe):
    names = [table.name_of(cell) for table in recipe.tables for cell in table.cells]
    assert len(names) == len(set(names))
    assert len({table.id for table in recipe.tables}) == len(recipe.tables)
    assert not [name for name in names if set("[]?*") & set(name)], "patterns could not name these"
    for table in recipe.tables:
        assert table.title
        assert table.convention.endswith(".")
        assert table.note.endswith(".")


def test_every_cell_asks_for_statistics_its_attack_can_give(recipe):
    for table, cell in attacked(recipe):
        (attack,) = (catalog.build("attacks", spec) for spec in cell.run.scenario.attacks)
        assert cell.reported, table.name_of(cell)
        for statistic in cell.reported:
            parse(statistic)
            if statistic.startswith(OF_SUCCESS) or statistic.endswith("of_successes"):
                assert isinstance(attack, GradientMatching), table.name_of(cell)


def test_every_cell_has_its_attacker_among_those_its_run_plays(recipe):
    for table, cell in attacked(recipe):
        played = {c.adaptive for c in plan(cell.run.scenario, undefended=False) if not c.attack.baseline}
        assert (cell.variant == "adaptive") in played, table.name_of(cell)


def test_models_of_the_recipe_can_be_built(recipe):
    shapes = {"adult": (108,), "breast-cancer": (30,), "mnist": (1, 28, 28)}
    for model, data in {(s.model, s.data) for s in scenarios_of(recipe.tables)}:
        shape = shapes.get(data, (3, 32, 32))
        kind = "image" if len(shape) == 3 else "tabular"
        load_model(model, DataSpec(data, shape, 10, kind, (0.5,) * shape[0], (0.5,) * shape[0]), 0, None)


def test_every_table_has_a_quick_cell_of_a_few_victims(recipe):
    quick = chosen(recipe, quick=True)
    assert {table.id for table in quick} >= {table.id for table in recipe.tables if not table.heavy}
    runs = [cell.run for table in quick for cell in table.cells]
    assert all(1 <= run.victims <= 8 for run in runs if isinstance(run, Run))
    assert all(run.seeds == 1 for run in runs)
    assert not any(s.training.rounds for s in scenarios_of(quick))


def test_full_cells_have_at_least_fifty_records(recipe):
    light = (cell.run for table in recipe.tables if not table.heavy for cell in table.cells)
    assert all(run.victims * run.scenario.batch_size >= 50 for run in light if isinstance(run, Run))


def test_every_cell_without_victims_asks_for_known_figures_and_says_what_it_counts(recipe):
    for table in recipe.tables:
        for cell in table.cells:
            if isinstance(cell.run, Study):
                assert cell.reported, table.name_of(cell)
                assert cell.reported.keys() <= FIGURES.keys(), table.name_of(cell)
                assert cell.run.size >= 1
                assert cell.run.measurement.unit in cell.run.sample
                assert len({describe(piece) for piece in cell.run.pieces}) == cell.run.seeds
