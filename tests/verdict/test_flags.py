"""Each flag has an id, a reason and a remedy, and is raised when it must be."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.linear import Linear
from leakgauge.types import Batch, Reconstruction, SharedUpdate, threat_model
from leakgauge.verdict.flags import (
    FLAGS,
    generator_flags,
    is_unchanged,
    never_moved,
    objective_fell,
    oracle_flags,
    ran_out_of_time,
)

UPDATE = SharedUpdate("gradient", {"w": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[3.0]])})


def test_every_flag_has_a_reason_and_a_remedy_under_its_own_id():
    for name, flag in FLAGS.items():
        assert flag.id == name
        assert flag.reason
        assert flag.remedy


@pytest.mark.parametrize(
    ("told", "flags"),
    [
        ("honest-but-curious", ()),
        ("honest-but-curious+labels", ("labels-given",)),
        ("eavesdropper+batchnorm+labels", ("batchnorm-given", "labels-given")),
    ],
)
def test_oracles_are_flagged(told, flags):
    assert oracle_flags(threat_model(told)) == flags
    assert set(flags) <= set(FLAGS)


def test_an_unchanged_update_is_noticed():
    assert is_unchanged(UPDATE.map(lambda _, t: t.clone()), UPDATE)


def test_one_changed_entry_is_a_change():
    assert not is_unchanged(UPDATE.map(lambda n, t: t + 1e-6 if n == "b" else t), UPDATE)


def test_other_parameters_or_another_kind_are_a_change():
    assert not is_unchanged(SharedUpdate("gradient", {"w": UPDATE.tensors["w"]}), UPDATE)
    assert not is_unchanged(SharedUpdate("gradient", {**UPDATE.tensors, "x": torch.ones(1)}), UPDATE)
    assert not is_unchanged(SharedUpdate("weight_delta", UPDATE.tensors), UPDATE)


def result(objective, trace) -> Reconstruction:
    count = torch.zeros(len(objective), dtype=torch.long)
    return Reconstruction(None, None, torch.tensor(objective), count, count, trace=trace)


def test_an_objective_that_did_not_lose_a_tenth_did_not_fall():
    nan, inf = float("nan"), float("inf")
    trace = torch.tensor([[10.0, 1.0], [10.0, 9.5], [10.0, nan], [inf, inf], [inf, 1.0]])
    fell = objective_fell(result([1.0, 9.5, 10.0, inf, 1.0], trace))
    assert fell.tolist() == [True, False, False, False, True]


def test_attacks_without_a_trace_are_not_accused():
    assert objective_fell(result([1.0, 2.0], None)).tolist() == [True, True]


def test_a_search_without_a_step_never_moved():
    trace = torch.tensor([[1.0], [1.0]])
    moved = dataclasses.replace(result([1.0, 1.0], trace), steps=torch.tensor([0, 3]))
    assert never_moved(moved).tolist() == [True, False]
    assert never_moved(dataclasses.replace(moved, trace=None)).tolist() == [False, False]  # it does not search


@pytest.mark.parametrize(("seconds", "out"), [(1.0, False), (9.8, False), (9.95, True), (12.0, True)])
def test_an_attack_that_used_up_its_time_is_noticed(seconds, out):
    spent = dataclasses.replace(result([1.0], None), seconds=seconds)
    assert ran_out_of_time(DLG(time_budget=10.0), spent) is out
    assert not ran_out_of_time(DLG(), spent)
    assert not ran_out_of_time(Linear(), spent)
    assert "time-budget-spent" in FLAGS


def test_a_generator_that_saw_the_victims_is_flagged(monkeypatch):
    batch = Batch(torch.zeros(2, 3, 1, 8, 8), torch.zeros(2, 3, dtype=torch.long))
    asked = []

    def doubts(spec, victims):
        asked.append((spec, tuple(victims.shape)))
        return ("generator-saw-victims",)

    monkeypatch.setattr("leakgauge.verdict.flags.doubts_about", doubts)
    assert generator_flags(GGL(generator="g.safetensors"), batch) == ("generator-saw-victims",)
    assert asked == [("g.safetensors", (6, 1, 8, 8))]
    assert generator_flags(DLG(), batch) == ()
    assert {"generator-saw-victims", "generator-data-unknown", "no-better-than-decoy"} <= set(FLAGS)
