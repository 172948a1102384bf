"""The nouns: what they check, what they hide, and that a report survives JSON."""

import dataclasses
import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from leakgauge.audit.run import run_audit
from leakgauge.errors import BadInput, HiddenFact, LeakgaugeError
from leakgauge.types import (
    ORACLES,
    THREAT_MODELS,
    Attack,
    AuditReport,
    Batch,
    Client,
    Defense,
    Fact,
    Observation,
    Reconstruction,
    Scenario,
    SharedUpdate,
    TamperingServer,
    Training,
    cell_name,
    threat_model,
)


def observation(told: str = "honest-but-curious+labels+batchnorm", trials: int = 3) -> Observation:
    update = SharedUpdate("gradient", {"w": torch.arange(trials * 2.0).reshape(trials, 2)})
    facts = {
        Fact.NUM_SAMPLES: 1,
        Fact.LABELS: torch.arange(trials)[:, None],
        Fact.BATCHNORM_STATISTICS: {"bn": (torch.arange(trials * 1.0)[:, None], torch.ones(trials, 1))},
        Fact.PUBLIC_DATA: Batch(torch.zeros(1, 5, 2), torch.zeros(1, 5, dtype=torch.long)),
    }
    return Observation(nn.Linear(1, 2), update, threat_model(told), facts)


@dataclass(frozen=True)
class Echo(Attack):
    """Returns as many rows as its field says."""

    name: ClassVar[str] = "echo"
    summary: ClassVar[str] = "test"
    paper: ClassVar[str] = "none"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.NUM_SAMPLES})
    rows: int = 3

    def solve(self, observation, seeds, progress):
        zeros = torch.zeros(self.rows)
        return Reconstruction(zeros[:, None, None], None, zeros, zeros.long(), zeros.long())


# --- threat models ----------------------------------------------------------------------------------


def test_no_published_threat_model_reveals_an_oracle():
    assert not any(t.oracles for t in THREAT_MODELS.values())
    assert {Fact.LABELS, Fact.BATCHNORM_STATISTICS} == ORACLES


def test_an_oracle_is_added_by_name_and_shows_in_it():
    told = threat_model("eavesdropper+labels+batchnorm")
    assert told.name == "eavesdropper+labels+batchnorm"
    assert told.oracles == ORACLES
    assert told.facts > THREAT_MODELS["eavesdropper"].facts
    assert "given the true labels" in told.summary
    assert told.may_change == "nothing"
    assert not THREAT_MODELS["eavesdropper"].oracles  # the original is untouched


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("honest-but-curios", "did you mean 'honest-but-curious'"),
        ("honest-but-curious+label", "did you mean 'labels'"),
        ("", "threat model must be one of"),
    ],
)
def test_an_unknown_threat_model_is_refused_with_the_nearest(name, message):
    with pytest.raises(BadInput, match=message):
        threat_model(name)


def test_who_may_change_what():
    allowed = {name: t.may_change for name, t in THREAT_MODELS.items()}
    assert allowed == {
        "honest-but-curious": "nothing",
        "eavesdropper": "nothing",
        "malicious-parameters": "parameters",
        "malicious-architecture": "architecture",
    }


# --- observation ------------------------------------------------------------------------------------


def test_take_takes_per_trial_facts_and_leaves_the_others():
    some = observation().take([2, 0])
    assert some.trials == 2
    assert some.update.tensors["w"].tolist() == [[4, 5], [0, 1]]
    assert some.fact(Fact.LABELS).tolist() == [[2], [0]]
    mean, var = some.fact(Fact.BATCHNORM_STATISTICS)["bn"]
    assert mean.tolist() == [[2], [0]]
    assert var.shape == (2, 1)
    assert some.fact(Fact.PUBLIC_DATA).inputs.shape == (1, 5, 2)
    assert some.fact(Fact.NUM_SAMPLES) == 1


def test_batches_and_updates_are_taken_by_trial():
    batch = Batch(torch.arange(6.0).reshape(3, 2, 1), torch.arange(6).reshape(3, 2))
    assert batch.trials == 3
    assert batch.take([1]).labels.tolist() == [[2, 3]]
    update = SharedUpdate("weight_delta", {"w": torch.eye(3)}, {"b": torch.arange(3)})
    assert update.take([2]).buffers["b"].tolist() == [2]
    assert update.take([2]).kind == "weight_delta"


def test_map_keeps_kind_and_buffers_and_the_original():
    update = SharedUpdate("gradient", {"w": torch.ones(1, 2)}, {"b": torch.ones(1)})
    doubled = update.map(lambda name, t: 2 * t)
    assert doubled.tensors["w"].tolist() == [[2, 2]]
    assert doubled.buffers is update.buffers
    assert update.tensors["w"].tolist() == [[1, 1]]


# --- attacks and defenses ---------------------------------------------------------------------------


def test_an_attack_without_what_it_needs_is_refused_by_name():
    seen = observation()
    blind = dataclasses.replace(seen, revealed={})
    with pytest.raises(HiddenFact, match="'echo' needs num-samples"):
        Echo()(blind, (0, 1, 2))


def test_one_seed_per_trial():
    with pytest.raises(BadInput, match="seeds must be 3, one per trial, got 2"):
        Echo()(observation(), (0, 1))


def test_an_attack_that_loses_a_trial_is_caught():
    assert Echo()(observation(), (0, 1, 2)).inputs.shape == (3, 1, 1)
    with pytest.raises(LeakgaugeError, match="returned inputs for 2 of 3 trials"):
        Echo(rows=2)(observation(), (0, 1, 2))


def test_the_bases_are_abstract():
    class Half(Attack):
        name, needs = "half", frozenset()

    with pytest.raises(NotImplementedError):
        Half()(observation(), (0, 1, 2))

    class Server(TamperingServer):
        name = "server"

    with pytest.raises(NotImplementedError):
        Server().prepare(nn.Linear(1, 1), None)


def test_a_defense_that_overrides_nothing_changes_nothing():
    class Idle(Defense):
        name = "idle"

    idle, net, step = Idle(), nn.Linear(1, 1), object()
    assert idle.prepare(net) is net
    assert idle.wrap(step) is step
    assert idle.ways(Echo()) == idle.weaker_ways(Echo()) == ()
    assert idle.guarantee() is None
    clients = SharedUpdate("gradient", {"w": torch.tensor([[1.0], [3.0]])})
    assert idle.aggregate(clients).tensors["w"].tolist() == [[2.0]]


# --- scenario ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number from 1 to 2147483647, got 0"),
        ({"batch_size": True}, "batch_size must be a whole number"),
        ({"trials": 2.0}, "trials must be a whole number from 1 to 2147483647, got 2.0"),
        ({"seed": -1}, "seed must be a whole number from 0 to 2147483647"),
        ({"seed": 2**40}, "seed must be a whole number from 0 "),
        ({"variants": "none"}, "one of both, plain, adaptive"),
        ({"gate": 3}, "gate must be text"),
        ({"assume": 3}, "assume must be text"),
        ({"assume": "prune", "variants": "plain"}, "assume must be left out with variants"),
        ({"batch_labels": "some"}, "one of any, distinct, same"),
        ({"model": 3}, "model must be text"),
        ({"weights": 3}, "weights must be text"),
        ({"data": None}, "data must be text"),
        ({"defenses": "gaussian"}, "defenses must be a list of names"),
        ({"attacks": ["dlg", 3]}, "attacks must be a list of names"),
        ({"attacks": 3}, "attacks must be a list of names"),
        ({"threat_model": "curious"}, "threat model must be one of"),
        ({"modell": "mlp"}, "scenario key .*did you mean 'model'"),
        ({"local": "fedavg"}, r"local must be a table.*\[local\]"),
        ({"local": {"kind": "fedsdg"}}, "did you mean 'fedsgd'"),
        ({"local": {"epoch": 2}}, "did you mean 'epochs'"),
        ({"training": 20}, r"training must be a table.*\[training\]"),
        ({"training": {"rounds": -1}}, "training: rounds must be at least 0, got -1"),
        ({"training": {"rounds": 1.5}}, "training: rounds must be a whole number"),
        ({"training": {"lr": 0}}, "training: lr must be above 0"),
        ({"training": {"optimizer": "adan"}}, "did you mean 'adam'"),
        ({"training": {"round": 2}}, "did you mean 'rounds'"),
        ({"precision": "float16"}, "precision must be one of float32, tf32, float64, got 'float16'"),
    ],
)
def test_a_wrong_scenario_is_refused_in_one_line(values, message):
    with pytest.raises(BadInput, match=message) as caught:
        Scenario.from_mapping(values)
    assert "\n" not in str(caught.value)


def test_a_scenario_survives_json():
    scenario = Scenario.from_mapping(
        {
            "data": "digits",
            "defenses": ["prune"],
            "attacks": ["dlg"],
            "local": {"kind": "fedavg", "epochs": 2},
            "training": {"rounds": 20, "optimizer": "sgd"},
            "precision": "float64",
        }
    )
    assert scenario.local == Client(kind="fedavg", epochs=2)
    assert scenario.training == Training(rounds=20, optimizer="sgd")
    assert scenario.defenses == ("prune",)
    assert Scenario.from_mapping(json.loads(json.dumps(scenario.as_dict()))) == scenario


def test_a_scenario_of_before_there_was_training_or_precision_is_an_untrained_one_in_float32():
    old = Scenario(data="digits").as_dict()
    del old["training"], old["precision"]
    assert Scenario.from_mapping(old) == Scenario(data="digits")
    assert Scenario().training.rounds == 0
    assert Scenario().precision == "float32"


def test_a_trials_seed_does_not_depend_on_how_many_follow():
    assert Scenario(seed=7, trials=3).seeds == (7, 8, 9)
    assert Scenario(seed=7, trials=9).seeds[:3] == (7, 8, 9)


# --- report -----------------------------------------------------------------------------------------


def test_a_report_survives_json_exactly():
    scenario = Scenario(
        data="digits",
        model="mlp:hidden=8",
        trials=2,
        attacks=("linear", "dlg:steps=1,restarts=1"),
        defenses=("gaussian:std=0.01",),
    )
    report, _ = run_audit(scenario)
    text = json.dumps(report.as_dict(), allow_nan=False)
    back = AuditReport.from_dict(json.loads(text))
    assert back == report
    assert json.dumps(back.as_dict(), allow_nan=False) == text
    assert json.loads(text)["schema"] == 2


def test_a_report_of_before_there_was_training_or_precision_is_still_read():
    report, _ = run_audit(Scenario(data="digits", model="mlp:hidden=8", trials=1, attacks=("linear",)))
    old = json.loads(json.dumps(report.as_dict()))
    del old["scenario"]["training"], old["scenario"]["precision"]
    old["environment"].pop("model state", None)
    back = AuditReport.from_dict(old)
    assert back.scenario == report.scenario
    assert back.findings == report.findings


def test_a_report_of_another_schema_is_refused():
    with pytest.raises(BadInput, match="report schema must be 1 or 2, got 99"):
        AuditReport.from_dict({"schema": 99})


def test_a_cells_name_says_attack_defense_and_variant():
    assert cell_name("dlg", "none", False) == "dlg | none | plain"
    assert cell_name("dlg", "prune", True) == "dlg | prune | adaptive"
