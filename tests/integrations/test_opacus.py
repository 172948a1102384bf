"""Opacus' optimiser is recognised as dp-sgd, with the epsilon that Opacus itself accounts."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from leakgauge.data import load
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.integrations.opacus import dp_sgd_of
from leakgauge.recording.recorded_folder import read_folder, tensors_of
from leakgauge.recording.recorder import Recorder
from leakgauge.setup.plan import parse_chain

pytest.importorskip("opacus", reason="the package opacus is not installed")


def private(accountant: str = "rdp", steps: int = 3) -> tuple[Any, Any, Any]:
    """A model, optimiser and engine after so many steps of Opacus' own training."""
    from opacus import PrivacyEngine

    inputs, labels = load("digits", "test", None).take(torch.arange(40))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on its random numbers, which are good enough for a test
        engine = PrivacyEngine(accountant=accountant)
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), 0.1),
            noise_multiplier=1.3,
            max_grad_norm=0.7,
            data_loader=DataLoader(TensorDataset(inputs, labels), batch_size=8),
        )
        for _, (some, answers) in zip(range(steps), loader, strict=False):
            optimizer.zero_grad()
            cross_entropy(model(some), answers).backward()
            optimizer.step()
    return model, optimizer, engine


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_the_defense_and_its_promise_are_read_off(accountant: str) -> None:
    _, optimizer, engine = private(accountant)
    found = dp_sgd_of(optimizer, engine.accountant, delta=1e-3)
    assert (found.defense.norm, found.defense.sigma, found.defense.rounds) == (0.7, 1.3, 3)
    assert found.defense.q == pytest.approx(0.2)
    assert found.guarantee is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found.guarantee.epsilon == pytest.approx(engine.get_epsilon(1e-3), rel=1e-2)
    assert found.guarantee.unit == "sample"
    assert parse_chain(found.defense.spec) == (found.defense,)


def test_an_accountant_without_an_upper_bound_is_replaced_by_ours() -> None:
    _, optimizer, engine = private("gdp")
    found = dp_sgd_of(optimizer, engine.accountant)
    assert found.defense.accountant == "rdp"
    assert found.guarantee == found.defense.guarantee()
    assert "no upper bound" in found.note


def test_nothing_is_promised_before_a_step_or_without_an_accountant() -> None:
    _, optimizer, engine = private(steps=0)
    assert dp_sgd_of(optimizer, engine.accountant).guarantee is None
    assert dp_sgd_of(optimizer).guarantee is None


def test_noise_that_changed_is_accounted_by_opacus() -> None:
    _, optimizer, engine = private()
    engine.accountant.step(noise_multiplier=0.9, sample_rate=0.2)
    found = dp_sgd_of(optimizer, engine.accountant, delta=1e-3)
    assert (found.defense.q, found.defense.rounds, found.steps) == (0, 0, 4)
    assert found.guarantee is not None
    assert "changed" in found.note


def test_other_optimisers_are_refused() -> None:
    with pytest.raises(BadInput, match="make_private"):
        dp_sgd_of(torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1))
    _, optimizer, _ = private(steps=0)
    optimizer.max_grad_norm = [0.1, 0.2]
    with pytest.raises(NotApplicable, match="one fixed bound"):
        dp_sgd_of(optimizer)


def test_a_private_step_is_recorded_under_the_networks_own_names(tmp_path: Any) -> None:
    model, optimizer, _ = private(steps=1)
    inputs, labels = load("digits", "test", None).take(torch.arange(8))
    with Recorder(tmp_path).weight_delta(model, samples=8, lr=0.1):
        optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    assert tensors_of(read_folder(tmp_path)[0], plain).tensors.keys() == {"1.weight", "1.bias"}
