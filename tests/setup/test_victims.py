"""Victims with and without their samples; without them nothing can be asked about the truth."""

from __future__ import annotations

import pytest
import torch

from leakgauge.defenses.mixing import Mixing
from leakgauge.defenses.secure_aggregation import SecureAggregation
from leakgauge.errors import LeakgaugeError
from leakgauge.setup.victims import Victims
from leakgauge.types import Batch, SharedUpdate

CROWD = Batch(torch.arange(24.0).reshape(2, 6, 1, 2), torch.arange(12).reshape(2, 6))
SHARED = SharedUpdate("gradient", {"w": torch.ones(3, 4)})


def test_the_truth_is_the_victims_own_samples_of_the_crowd():
    victims = Victims(2, CROWD)
    assert not victims.blind
    assert victims.trials == 2
    assert torch.equal(victims.truth.labels, CROWD.labels[:, :2])
    assert victims.name(1) == "1"


def test_a_sum_has_the_samples_of_its_clients_behind_it():
    victims = Victims(2, CROWD)
    assert victims.behind(()).labels.shape == (2, 2)
    assert victims.behind((SecureAggregation(clients=3),)).labels.shape == (2, 6)


def test_clients_that_are_mixed_in_stand_behind_the_victim():
    victims, mixed = Victims(2, CROWD), (Mixing(clients=3),)
    held = victims.with_fellows(mixed, victims.behind(mixed))
    assert torch.equal(held.labels, CROWD.labels)


def test_without_samples_the_truth_cannot_be_asked_for():
    blind = Victims(2, shared=SHARED, names=("Ann", "Bob", "Eve"))
    assert blind.blind
    assert blind.trials == 3
    assert blind.name(1) == "Bob"
    for ask in (lambda: blind.truth, lambda: blind.behind(()), lambda: blind.everyone):
        with pytest.raises(LeakgaugeError, match="not known"):
            ask()


def test_victims_of_nothing_are_refused():
    with pytest.raises(LeakgaugeError, match="samples, their updates, or both"):
        Victims(1)
