"""Attacks that cannot work are told before any time is spent."""

import pytest

from leakgauge import catalog
from leakgauge.audit.applicability import sorted_out, why_not
from leakgauge.recording.triage import first_observation
from leakgauge.setup.plan import plan
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario


def setup(**changes):
    return load_setup(Scenario(**{"data": "digits", "trials": 1} | changes), None, "cpu")


@pytest.mark.parametrize(
    ("model", "batch", "attack", "reason"),
    [
        ("lenet-dlg", 1, "linear", "first layer with weights is nn.Linear"),
        ("lenet-dlg", 1, "peeling", "first layer with weights is nn.Linear"),
        ("mlp:hidden=8,activation=sigmoid", 2, "peeling", "ReLU right behind"),
        ("mlp:hidden=8", 2, "rgap", "one sample, the update holds 2"),
        ("mlp:hidden=8", 1, "linear", ""),
        ("mlp:hidden=8", 2, "peeling", ""),
        ("mlp:hidden=8", 1, "inverting-gradients", ""),
    ],
)
def test_the_attack_says_itself_whether_it_can_work(model, batch, attack, reason):
    seen = first_observation(setup(model=model, batch_size=batch))
    found = why_not(catalog.build("attacks", attack), seen)
    assert (reason in found) if reason else not found


def test_a_fact_that_is_hidden_is_named():
    seen = first_observation(setup(model="mlp:hidden=8", threat_model="eavesdropper"))
    assert "public-data" in why_not(catalog.build("attacks", "ggl"), seen)


def test_grnn_draws_pictures_only():
    seen = first_observation(setup(data="breast-cancer", model="mlp"))
    assert "grnn generates pictures" in why_not(catalog.build("attacks", "grnn"), seen)


def test_each_is_listed_once_for_all_configurations():
    made = setup(model="lenet-dlg", defenses=("prune", "gaussian:std=1"))
    cells, skipped = sorted_out(made, plan(made.scenario))
    assert [s.attack for s in skipped if s.defense == "all"][:4] == ["linear", "rank-one", "patch-embedding", "peeling"]
    assert not {"linear", "rank-one", "patch-embedding", "peeling"} & {c.attack.name for c in cells}
    assert {"mean-image", "random-guess"} <= {c.attack.name for c in cells}


def test_equations_that_a_defense_breaks_are_not_solved():
    made = setup(model="lenet-dlg", defenses=("prune",))
    cells, skipped = sorted_out(made, plan(made.scenario))
    assert [c.defense for c in cells if c.attack.name == "rgap"] == ["none"]
    assert ("rgap", "prune") in {(s.attack, s.defense) for s in skipped}
