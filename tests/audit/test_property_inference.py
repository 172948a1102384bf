"""Property inference (METHODS A13): an obvious property is told, shuffled labels tell nothing, noise hides it."""

import dataclasses
import json

import pytest
import torch

from leakgauge.audit.property_inference import PropertyInference, attackers_carriers, infer_property
from leakgauge.errors import BadInput, HiddenFact
from leakgauge.types import Scenario

SMALL = Scenario(model="mlp:hidden=16", data="digits", trials=24, batch_size=8)
QUICK = PropertyInference(batches=60, trees=20, public=300)


def ask(prop, scenario=SMALL, **fields):
    return infer_property(scenario, dataclasses.replace(QUICK, property=prop, **fields), device="cpu")


@pytest.fixture(scope="module")
def patched():
    noisy = dataclasses.replace(SMALL, defenses=("gaussian:std=10",))
    return ask("patch:4", noisy, share=1.0)


def test_a_patch_is_told_without_a_defense(patched):
    (row,) = [r for r in patched.rows if r.defense == "none"]
    assert row.attacker == "plain"
    assert row.auc.value > 0.95
    assert row.accuracy.recovered >= 20
    assert row.accuracy.records == 24


def test_shuffled_labels_tell_about_nothing(patched):
    control = patched.rows[0].control
    assert abs(control.value - 0.5) < 0.25
    assert control.low < control.high


def test_behind_much_noise_neither_attacker_tells_it(patched):
    behind = [r for r in patched.rows if r.defense != "none"]
    assert [r.attacker for r in behind] == ["plain", "adaptive"]
    for row in behind:
        assert row.auc.low < 0.6


def test_half_of_the_victims_have_it_whatever_their_number(patched):
    assert sum(patched.has) == 12
    assert patched.has[:2] == (False, True)


def test_a_victim_is_judged_alike_among_fewer():
    many = ask("class:3")
    few = ask("class:3", dataclasses.replace(SMALL, trials=6))
    assert few.rows[0].probabilities == pytest.approx(many.rows[0].probabilities[:6])
    assert ask("class:3").rows[0].probabilities == many.rows[0].probabilities, "the same command, the same answer"


def test_who_knows_the_defense_beats_who_does_not():
    """Pruning leaves a pattern that an attacker sees only if it has pruned its own updates too."""
    pruned = dataclasses.replace(SMALL, defenses=("prune:share=0.9",), trials=40)
    rows = {r.attacker: r for r in ask("class:3", pruned).rows if r.defense != "none"}
    assert rows["adaptive"].auc.value >= rows["plain"].auc.value
    assert rows["adaptive"].auc.value > 0.9


def test_the_attackers_noise_is_never_a_victims(monkeypatch):
    from leakgauge.audit import property_inference

    seen = []

    def noted(self, carriers, size, seeds, role, repeat=False):
        seen.append((role, tuple(seeds)))
        return drawn(self, carriers, size, seeds, role, repeat)

    drawn = property_inference.Pool.draw
    monkeypatch.setattr(property_inference.Pool, "draw", noted)
    ask("class:3", dataclasses.replace(SMALL, defenses=("gaussian:std=0.1",)))
    victims = {s for role, seeds in seen if role == "property/victim" for s in seeds}
    attacker = {s for role, seeds in seen if role == "property/attacker" for s in seeds}
    assert victims
    assert attacker
    assert not victims & attacker


def test_levels_are_those_of_the_paper():
    carriers = attackers_carriers(0.4, 10, 16)
    assert carriers[::2] == [0] * 8
    assert carriers[1::2] == [4, 6, 8, 10] * 2
    assert set(attackers_carriers(0.01, 1, 8)) == {0, 1}


def test_weight_differences_and_batchnorm_statistics_are_read_too():
    local = Scenario.from_mapping({"local": {"kind": "fedavg", "epochs": 2, "batch_size": 4, "lr": 0.1}}).local
    assert ask("class:3", dataclasses.replace(SMALL, local=local)).rows[0].auc.value > 0.9


def test_the_report_is_plain_json_and_says_what_it_rests_on(patched):
    plain = json.loads(json.dumps(patched.as_dict(), allow_nan=False))
    assert plain["chance"] == {"auc": 0.5, "accuracy": 0.5}
    assert plain["seeds"] == list(range(24))
    assert plain["inference"]["property"] == "patch:4"
    assert plain["pools"]["public"]["carry it"] == 300
    assert plain["environment"]["torch"] == torch.__version__
    assert "attacks" not in plain["scenario"]
    assert len(plain["rows"][0]["probabilities"]) == 24


def test_an_attacker_without_public_data_is_refused():
    with pytest.raises(HiddenFact, match="public-data"):
        ask("class:3", dataclasses.replace(SMALL, threat_model="eavesdropper"))


def test_a_batch_larger_than_what_there_is_is_refused():
    with pytest.raises(BadInput, match="that carry it"):
        ask("class:3", dataclasses.replace(SMALL, batch_size=200), share=0.9)


def test_one_victim_is_too_few_to_rank():
    with pytest.raises(BadInput, match="at least 2"):
        ask("class:3", dataclasses.replace(SMALL, trials=1))
