"""The server is left with a sum: what that costs, and what an attacker makes of it."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.audit.run import run_audit
from leakgauge.defenses.secure_aggregation.defense import SecureAggregation
from leakgauge.defenses.secure_aggregation.masking import step_of
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.types import Partition, Scenario, SharedUpdate

UPDATES = SharedUpdate("gradient", {"w": torch.randn(5, 7, 9, generator=torch.Generator().manual_seed(0))})
TINY = Scenario(
    data="digits",
    model="mlp:hidden=16",
    trials=2,
    batch_size=2,
    attacks=("linear",),
    seed=3,
    defenses=("secure-aggregation:clients=3",),
)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_the_server_has_the_plain_mean_within_the_rounding(bits):
    mean = SecureAggregation(bits=bits).aggregate(UPDATES).tensors["w"]
    error = (mean - UPDATES.tensors["w"].mean(0, keepdim=True)).abs().max()
    assert error <= step_of(16, bits, 5) / 2 + 1e-6  # of float32
    assert mean.shape == (1, 7, 9)


def test_what_does_not_fit_is_refused_and_not_cut_off_in_silence():
    with pytest.raises(NotApplicable, match=r"up to limit=2, and a client's 'w' has one of 3\.41; raise limit"):
        SecureAggregation(limit=2).aggregate(UPDATES)
    broken = UPDATES.map(lambda _, t: t * torch.nan)
    with pytest.raises(NotApplicable, match="one of nan"):
        SecureAggregation().aggregate(broken)


@pytest.mark.parametrize(("field", "value"), [("clients", 1), ("bits", 15), ("bits", 65), ("limit", 0)])
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(BadInput, match=f"secure-aggregation: {field}"):
        SecureAggregation(**{field: value})


def test_masked_words_travel_whole_and_keys_beside_them():
    shapes = {"w": torch.Size([10, 10]), "b": torch.Size([3])}
    assert SecureAggregation(bits=32).bytes_up(shapes) == 4 * 103 + 32
    assert SecureAggregation(bits=64).bytes_up(shapes) == 8 * 103 + 32
    assert SecureAggregation().bytes_down(shapes, 4, clients=10) == 4 * 103 + 9 * 32


@pytest.mark.parametrize("attack", [DLG(steps=7), InvertingGradients(steps=7)])
def test_gradient_matching_is_told_how_many_clients_there_are(attack):
    assert SecureAggregation(clients=3).adaptive(attack) == (dataclasses.replace(attack, clients=3),)


def test_other_attacks_get_what_they_can_use():
    assert SecureAggregation().adaptive(Linear()) == (Linear(combine="least-squares"),)
    assert SecureAggregation().adaptive(RandomGuess()) == ()


def test_every_record_of_the_sum_is_attacked_and_the_victims_own_are_shown():
    report, pictures = run_audit(TINY)
    sizes = {(f.attack, f.defense): len(f.records) for f in report.findings}
    assert sizes["linear", "none"] == 2
    assert sizes["linear", "secure-aggregation:clients=3"] == 6
    assert sizes["mean-image", "none"] == 6  # a floor for each of them
    assert {tuple(p.shape) for p in pictures.recovered.values()} == {(2, 2, 1, 8, 8)}
    row = next(r for r in report.summary if r.defense != "none" and r.adaptive)
    assert row.success_rate.records == 12


def test_the_undefended_row_does_not_change_beside_a_sum():
    alone, _ = run_audit(dataclasses.replace(TINY, defenses=()))
    beside, _ = run_audit(TINY)
    bare = [[f.scores for f in r.findings if (f.attack, f.defense) == ("linear", "none")] for r in (alone, beside)]
    assert bare[0] == bare[1]


def test_in_a_federation_the_others_are_other_clients():
    shared = Partition(kind="classes", clients=5, classes=2)
    report, _ = run_audit(dataclasses.replace(TINY, partition=shared))
    assert not any(f.error for f in report.findings)


def test_a_sum_of_more_samples_than_there_are_is_refused_in_one_line():
    with pytest.raises(BadInput, match="2 samples"):
        run_audit(dataclasses.replace(TINY, defenses=("secure-aggregation:clients=1000",)))
