"""The measurement behind the recipe `peeling`, on embedded data."""

import pytest
import torch

from leakgauge.errors import LeakgaugeError
from leakgauge.lab.recipes.peeling.recipe import PeeledBatches, _private


def test_counts_certificates_and_checks_each_against_the_private_samples():
    found = PeeledBatches(data="digits", batch_size=4, batches=2, hidden=200).figures("cpu", None, lambda *_: None)
    assert found["whole_batches"] == (1.0, 1.0)
    assert found["certificates"] == (4.0, 4.0)
    assert found["not_private"] == (0.0, 0.0)
    assert all(len(sample) == 2 for sample in found.values())


def test_who_knows_the_defense_solves_and_whoever_gains_nothing_is_refused():
    known = PeeledBatches(data="digits", batch_size=4, batches=1, hidden=200, defense="precode", informed=True)
    plain = PeeledBatches(data="digits", batch_size=4, batches=1, hidden=200, defense="precode")
    assert sum(plain.figures("cpu", None, lambda *_: None)["certified"]) == 0
    assert sum(known.figures("cpu", None, lambda *_: None)["certified"]) > 0
    lost = PeeledBatches(data="digits", batch_size=4, batches=1, hidden=30, defense="sign", informed=True)
    with pytest.raises(LeakgaugeError, match="gains nothing"):
        lost.figures("cpu", None, lambda *_: None)


def test_a_sample_counts_once_and_a_stranger_not_at_all():
    truth = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    claims = torch.tensor([[0.01, 0.0], [0.0, 0.02], [0.5, 0.5]])
    assert _private(claims, truth) == 1
    assert _private(claims[:0], truth) == 0
