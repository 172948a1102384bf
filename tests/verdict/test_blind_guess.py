"""Kappa: how often a guess succeeds that never saw an update."""

import pytest
import torch

from leakgauge.metrics.intervals import at_most
from leakgauge.types import Batch, DataSpec
from leakgauge.verdict.blind_guess import blind_success

TABLE = DataSpec("table", (4,), 2, "tabular")


def rows(counts) -> Batch:
    """So many samples of each corner: the corner's number in binary, labelled by its parity."""
    corners = [c for c, count in enumerate(counts) for _ in range(count)]
    corners = [corners[i] for i in torch.randperm(len(corners), generator=torch.Generator().manual_seed(0)).tolist()]
    inputs = torch.tensor([[float(c >> bit & 1) for bit in range(4)] for c in corners])
    return Batch(inputs[None], torch.tensor(corners)[None] % 2)


def test_the_commonest_sample_is_the_best_guess():
    found = blind_success(TABLE, rows([50, 30, 20]), rows([60, 25, 15]), 1)
    assert (found.recovered, found.records, found.criterion) == (60, 100, "mse<=0.001")
    assert found.high == pytest.approx(at_most(60, 100))


def test_a_batch_may_guess_as_often_as_it_has_records():
    public, private = rows([50, 30, 20]), rows([60, 25, 15])
    assert blind_success(TABLE, public, private, 2).recovered == 85
    assert blind_success(TABLE, public, private, 3).recovered == 100


def test_who_knows_the_label_guesses_once_per_label():
    public, private = rows([50, 30, 20]), rows([60, 25, 15])
    assert blind_success(TABLE, public, private, 1, by_label=True).recovered == 85


def test_guesses_are_chosen_on_public_data_alone():
    found = blind_success(TABLE, rows([90, 10]), rows([10, 90]), 1)
    assert found.recovered == 10


def test_continuous_samples_are_not_guessed_and_that_has_a_limit():
    source = torch.Generator().manual_seed(0)
    public, private = (Batch(torch.rand(1, n, 4, generator=source), torch.zeros(1, n).long()) for n in (200, 300))
    found = blind_success(TABLE, public, private, 1)
    assert found.recovered <= 2
    assert 0 < found.high < 0.03


@pytest.mark.parametrize(("public", "private"), [(None, rows([1])), (rows([1]), None)])
def test_without_samples_nothing_is_claimed(public, private):
    assert blind_success(TABLE, public, private, 1) is None
