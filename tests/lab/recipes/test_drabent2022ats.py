"""The recipe's own parts: who knows what, what is trained, and a small correlation and training."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from leakgauge import catalog
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import load
from leakgauge.defenses.ats import ATS
from leakgauge.engine.gradients import trial_gradients
from leakgauge.errors import BadInput
from leakgauge.lab.policy_search import SINGLES
from leakgauge.lab.recipes import get
from leakgauge.lab.recipes.drabent2022ats._accuracy import PolicyTraining
from leakgauge.lab.recipes.drabent2022ats._correlation import ScoreAndLeak
from leakgauge.lab.recipes.drabent2022ats._during import DEPTHS, MARKS, DuringAttack, at_marks, by_depth
from leakgauge.lab.recipes.drabent2022ats._pictures import ExposedPictures, between_classes, contrast, edges
from leakgauge.lab.recipes.drabent2022ats._set_up import (
    AFTERWARDS,
    ATTACKERS,
    CONVNET,
    HYBRID,
    LBFGS,
    NARROW,
    PLAIN,
    RESNET,
    THROUGH,
    TRIO,
    WAYS,
    attacked,
    named,
    semi_trained,
    training,
)
from leakgauge.lab.recipes.drabent2022ats._single import CLAIMED, OperationScores
from leakgauge.lab.reproduce.recipe import Run, pieces_of
from leakgauge.lab.reproduce.running import run_one
from leakgauge.matching.distance import gradient_distance
from leakgauge.models import load_model
from leakgauge.setup.plan import plan
from leakgauge.types import Batch, Client, Known, Scenario, threat_model

RECIPE = get("drabent2022ats")
FIGURES = {"figure-1", "figure-2", "figure-4", "figure-5", "figure-6"}  # figure 3 is pictures
SHORT = "inverting-gradients:steps=3"


def test_who_knows_the_policy_plays_the_same_attack_in_its_own_way():
    plain, through, afterwards = (attacked(HYBRID, LBFGS, who).scenario for who in ATTACKERS[:3])
    assert plain.attacks == through.attacks == afterwards.attacks == (LBFGS,)
    assert (plain.variants, plain.assume) == ("plain", "")
    for scenario, way in ((through, THROUGH), (afterwards, AFTERWARDS)):
        (known,) = (cell.known for cell in plan(scenario, undefended=False) if cell.adaptive)
        assert known == (Known(ATS(policy=HYBRID), WAYS[way]),)
    assert ATS(policy=HYBRID).guesses == 16


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
                {"psnr", "psnr_std"},
                {"psnr_trained_on", "psnr_trained_on_std"},
            )


def test_a_hybrid_of_three_draws_among_three():
    drawn = catalog.build("defenses", f"ats:policy={TRIO}")
    assert named(drawn.policy, PLAIN).startswith("hybrid ")
    assert len(TRIO.split("/")) == 3
    assert len(drawn.ways(catalog.build("attacks", LBFGS))) == 2


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
    assert (
        run_one(trained, "cpu", None).figures["privacy_score"]
        != run_one(dataclasses.replace(trained, rounds=0), "cpu", None).figures["privacy_score"]
    )


def test_a_training_is_tested_on_pictures_as_they_are():
    measured = PolicyTraining(model="lenet-dlg:activation=relu,init=default", data="digits", policy=HYBRID, rounds=3)
    found = run_one(measured, "cpu", None).figures
    assert 0 <= found["accuracy"][0] <= 1
    assert measured.resized(2).size == 2
    assert HYBRID in measured.title


def test_a_curve_has_the_loss_and_the_accuracy_on_the_way_and_leaves_the_training_as_it_was():
    plain = PolicyTraining(model="resnet20:width=2", data="digits", rounds=8)
    curve = dataclasses.replace(plain, curve=True)
    found, same = (run_one(each, "cpu", None).figures for each in (curve, plain))
    assert found["accuracy"] == same["accuracy"], "looking at BatchNorm on the way changes nothing"
    assert set(found) == {"accuracy", *(f"{w}_{m}" for w in ("loss", "test") for m in (10, 25, 50, 75, 100))}
    assert found["test_100"] == pytest.approx(found["accuracy"], abs=0.05)
    assert "curve" not in plain.as_dict(), "its key is that of the trainings there were before"


def test_single_operations_are_scored_one_by_one_on_the_same_pictures():
    measured = OperationScores(model="lenet-dlg", data="digits", pictures=3)
    found = run_one(measured, "cpu", None).figures
    assert set(found) == {"single_none", "best_claimed", *(f"single_{n}" for n in SINGLES)}
    assert found["single_28"] == pytest.approx(found["single_none"], abs=1e-6), "28 changes nothing"
    assert found["single_0"] != found["single_none"]
    assert set(CLAIMED) < set(SINGLES)
    means = {n: sum(found[f"single_{n}"]) for n in SINGLES}
    assert found["best_claimed"] == (sum(n in CLAIMED for n in sorted(means, key=means.__getitem__)[:5]),)


def _watched(attack):
    samples = load("digits", "test")
    model = load_model("lenet-dlg", samples.spec, 0, None)
    inputs, labels = samples.take(torch.arange(3))
    batch, seeds = Batch(inputs[:, None], labels[:, None]), [0, 1, 2]
    told_of = threat_model("honest-but-curious+labels")
    update = fedsgd()(model, batch, seeds)
    facts = facts_about(model, batch, samples.spec, Client(), None, told_of.facts)
    return model, batch, update, observe(model, update, told_of, facts), seeds


@pytest.mark.parametrize("steps", [7, 20])
def test_what_is_watched_is_the_attack_itself(steps):
    """Step for step: at the end stands the picture that the attack would report, where its last one is its best."""
    attack = catalog.build("attacks", f"inverting-gradients:steps={steps},sign=none")
    _, _, _, observation, seeds = _watched(attack)
    marks = at_marks(attack, observation, seeds)
    assert list(marks) == list(MARKS)
    reported = attack(observation, seeds).inputs
    best = (marks[100] - reported).flatten(1).abs().amax(1)
    assert best.min() < 1e-4


def test_cosines_by_depth_are_those_of_each_tensor():
    attack = catalog.build("attacks", "inverting-gradients:steps=4")
    model, batch, update, observation, seeds = _watched(attack)
    pictures = at_marks(attack, observation, seeds)[50]
    gradients = trial_gradients(model, pictures, batch.labels)
    found = by_depth(gradients, update.tensors)
    assert list(found) == ["whole", *DEPTHS]
    assert torch.allclose(found["whole"], 1 - gradient_distance(gradients, update.tensors, "cosine"), atol=1e-5)
    last = [n for n, t in update.tensors.items() if t.dim() > 2][-1]
    by_hand = torch.nn.functional.cosine_similarity(gradients[last].flatten(1), update.tensors[last].flatten(1), 1)
    assert torch.allclose(found["deep"][-1], by_hand[-1], atol=1e-5) or len(update.tensors) > 6


def test_an_attack_that_cannot_be_followed_is_refused():
    for attack in ("cpl", "inverting-gradients:restarts=2", "inverting-gradients:layers=first"):
        with pytest.raises(BadInput, match="one attempt on all layers"):
            DuringAttack(model="lenet-dlg", attack=attack)


def test_gradients_during_an_attack_are_measured_at_every_mark():
    measured = DuringAttack(
        model="lenet-dlg", attack="inverting-gradients:steps=4", data="digits", pictures=2, policy=HYBRID
    )
    found = run_one(measured, "cpu", None).figures
    assert set(found) == {f"similar_{d}_{m}" for d in ("whole", "spread", *DEPTHS) for m in MARKS}
    assert all(len(sample) == 2 and max(map(abs, sample)) <= 1 + 1e-6 for sample in found.values())


def test_edges_and_contrast_of_known_pictures():
    flat, halves = torch.full((3, 8, 8), 0.4), torch.zeros(3, 8, 8)
    halves[:, :, 4:] = 1
    board = torch.ones(3, 8, 8) * ((torch.arange(8)[:, None] + torch.arange(8)) % 2)
    pictures = torch.stack([flat, halves, board])
    assert edges(pictures).tolist() == pytest.approx([0, 1 / 14, 1])
    spread = (64 / 63 / 4) ** 0.5
    assert contrast(pictures).tolist() == pytest.approx([0, spread, spread])


def test_classes_explain_all_or_nothing():
    labels = torch.tensor([4, 4, 7, 7])
    assert between_classes(torch.tensor([1.0, 1.0, 3.0, 3.0]), labels) == pytest.approx(1)
    assert between_classes(torch.tensor([1.0, 3.0, 1.0, 3.0]), labels) == pytest.approx(0)
    assert between_classes(torch.ones(4), labels) == 0


@pytest.mark.parametrize("attacker", [PLAIN, AFTERWARDS])
def test_every_picture_has_its_score_beside_what_is_seen_on_it(attacker):
    measured = ExposedPictures(
        model="lenet-dlg", attack="cpl:steps=1", policy="3-1-7", attacker=attacker, data="digits", pictures=4
    )
    found = run_one(measured, "cpu", None).figures
    assert len(found["psnr_of_pictures"]) == 4
    assert found["by_edges"][1::2] == found["psnr_of_pictures"]
    assert found["by_edges"][0::2] == found["by_edges_blind"][0::2]
    assert len(found["between_classes_by_chance"]) == 999


def test_a_semi_trained_network_follows_its_rule():
    samples = load("digits", "test")
    given = {"policy": "", "seed": 0, "device": torch.device("cpu"), "data_root": None}
    start, own, published = (
        semi_trained("mlp:hidden=8", "digits", samples.spec, rounds, rule=rule, **given)
        for rounds, rule in ((0, "search"), (1, "search"), (1, "published"))
    )
    weights = [next(model.parameters()).detach() for model in (start, own, published)]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
