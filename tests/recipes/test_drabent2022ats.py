"""The recipe's own parts: who knows what, what is trained, and a small correlation and training."""

from __future__ import annotations

import dataclasses

import pytest

from leakgauge import catalog
from leakgauge.recipes import get
from leakgauge.recipes._recipe import Run, pieces_of
from leakgauge.recipes._running import run_one
from leakgauge.recipes.drabent2022ats._accuracy import PolicyTraining
from leakgauge.recipes.drabent2022ats._correlation import ScoreAndLeak
from leakgauge.recipes.drabent2022ats._set_up import (
    AFTERWARDS,
    CONVNET,
    HYBRID,
    LBFGS,
    NARROW,
    PLAIN,
    RESNET,
    THROUGH,
    TRIO,
    named,
    told,
    training,
)
from leakgauge.types import Scenario

RECIPE = get("drabent2022ats")
FIGURES = {"figure-2"}
SHORT = "inverting-gradients:steps=3"


def test_who_knows_the_policy_says_so_in_its_fields():
    assert told(LBFGS, HYBRID, PLAIN) == LBFGS
    through, afterwards = (catalog.build("attacks", told(LBFGS, HYBRID, who)) for who in (THROUGH, AFTERWARDS))
    assert (through.policy, through.undo, through.restarts) == (HYBRID, "through", 16)
    assert (afterwards.policy, afterwards.undo, afterwards.restarts) == (HYBRID, "afterwards", 1)
    assert through.steps == afterwards.steps == catalog.build("attacks", LBFGS).steps


def test_the_policy_of_a_training_is_the_one_that_is_attacked():
    for run in (c.run for t in RECIPE.tables for c in t.cells if isinstance(c.run, Run)):
        scenario = run.scenario
        if scenario.training.rounds > 50 and any(d.startswith("ats") for d in scenario.defenses):
            assert scenario.defenses == (f"ats:policy={scenario.training.policy}",)
    assert training("").augment, "cropped and mirrored all the same"


def test_the_distribution_needs_no_runs_of_its_own():
    tables = {table.id: table for table in RECIPE.tables}
    assert set(pieces_of([tables["distribution"]])) <= set(pieces_of([tables["1"]]))


def test_tables_and_figures_have_the_numbers_of_the_document():
    ids = [table.id for table in RECIPE.tables]
    assert ids[:6] == ["1", "2", "3", "4", "5", "6"]
    assert {id for id in ids if id.startswith("figure")} == FIGURES


def test_the_network_of_the_document_is_attacked_where_its_figures_stand():
    """Figures of six pictures with their spread, next to the network that has 3.7 or 4.4 million parameters."""
    for cell in (c for t in RECIPE.tables[:6] for c in t.cells if isinstance(c.run, Run)):
        if any(v is not None for v in cell.reported.values()):
            assert cell.run.scenario.model in (RESNET, CONVNET)
            assert cell.run.scenario.training.rounds
            assert {s for s, v in cell.reported.items() if v is not None} in (
                {"psnr", "psnr_std"}, {"psnr_trained_on", "psnr_trained_on_std"}
            )  # fmt: skip


def test_a_hybrid_of_three_draws_among_three():
    drawn = catalog.build("defenses", f"ats:policy={TRIO}")
    assert named(drawn.policy, PLAIN).startswith("hybrid ")
    assert len(TRIO.split("/")) == 3
    assert len(drawn.adaptive(catalog.build("attacks", LBFGS))) == 2


def test_published_starts_are_those_of_the_table():
    specs = {c.run.scenario.attacks[0] for c in RECIPE.table("3").cells if "starts" in c.row}
    assert {catalog.build("attacks", s).restarts for s in specs} == {2, 16}


def test_untrained_cells_attack_a_hundred_pictures_with_known_labels():
    scenarios = [p for p in pieces_of(RECIPE.tables) if isinstance(p, Scenario)]
    assert {s.trials for s in scenarios if s.model != NARROW} == {100}
    assert {s.threat_model for s in scenarios} == {"honest-but-curious+labels"}


@pytest.fixture
def small() -> ScoreAndLeak:
    return ScoreAndLeak(model="lenet-dlg", attack=SHORT, data="digits", policies=5, attacked=2, scored=4)


def test_every_policy_has_a_score_and_what_was_recovered(small):
    found = run_one(small, "cpu", None).figures
    assert len(found["privacy_score"]) == len(found["psnr_of_policies"]) == 5
    assert all(0 <= score <= 1 for score in found["privacy_score"])
    assert found["pearson"][0::2] == found["privacy_score"]
    assert found["pearson"][1::2] == found["psnr_of_policies"]
    assert found["pearson_blind"][1::2] == found["psnr_blind"] != found["psnr_of_policies"]


def test_a_policy_does_not_depend_on_how_many_there_are(small):
    few, more = (run_one(small.resized(n), "cpu", None).figures for n in (2, 3))
    assert more["privacy_score"][:2] == pytest.approx(few["privacy_score"], abs=1e-5)
    assert more["psnr_of_policies"][:2] == pytest.approx(few["psnr_of_policies"], abs=1e-3)


def test_a_trained_network_is_scored_after_its_rounds(small):
    trained = dataclasses.replace(small, policies=1, rounds=1)
    assert run_one(trained, "cpu", None).figures["privacy_score"] != run_one(
        dataclasses.replace(trained, rounds=0), "cpu", None
    ).figures["privacy_score"]  # fmt: skip


def test_a_training_is_tested_on_pictures_as_they_are():
    measured = PolicyTraining(model="lenet-dlg:activation=relu,init=default", data="digits", policy=HYBRID, rounds=3)
    found = run_one(measured, "cpu", None).figures
    assert 0 <= found["accuracy"][0] <= 1
    assert measured.resized(2).size == 2
    assert HYBRID in measured.title
