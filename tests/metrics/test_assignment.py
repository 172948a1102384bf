import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.errors import BadInput
from leakgauge.metrics.assignment import assign, pairwise_mse, reorder


def test_the_example_order_is_found():
    truth = torch.rand(1, 3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    recon = truth[:, [1, 2, 0]]
    permutation = assign(truth, recon)
    assert permutation.tolist() == [[2, 0, 1]]
    assert torch.equal(reorder(recon, permutation), truth)


@given(trials=st.integers(1, 3), records=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_least_total_cost_among_all_orders(trials: int, records: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    truth, recon = torch.rand(2, trials, records, 6, generator=generator)
    matched = reorder(recon, assign(truth, recon))
    cost = (matched - truth).square().mean(2).sum(1)
    orders = itertools.permutations(range(records))
    best = torch.stack([(recon[:, o] - truth).square().mean(2).sum(1) for o in orders]).amin(0)
    assert torch.allclose(cost, best, atol=1e-6)


@given(order=st.permutations(range(6)), seed=st.integers(0, 10**6))
def test_the_order_of_the_reconstruction_does_not_matter(order: list[int], seed: int):
    truth, recon = torch.rand(2, 2, 6, 5, generator=torch.Generator().manual_seed(seed))
    shuffled = recon[:, order]
    assert torch.equal(reorder(recon, assign(truth, recon)), reorder(shuffled, assign(truth, shuffled)))


def test_each_trial_is_matched_on_its_own():
    truth = torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(0))
    recon = torch.stack([truth[0, [3, 2, 1, 0]], truth[1, [1, 0, 3, 2]]])
    assert assign(truth, recon).tolist() == [[3, 2, 1, 0], [1, 0, 3, 2]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_hopeless_records_take_what_is_left(bad: float):
    truth = torch.rand(1, 4, 5, generator=torch.Generator().manual_seed(0))
    recon = truth[:, [1, 2, 3, 0]].clone()
    recon[0, 1, 0] = bad  # was the match of record 2
    assert assign(truth, recon).tolist() == [[3, 0, 1, 2]]
    assert assign(truth, torch.full_like(truth, bad)).sort().values.tolist() == [[0, 1, 2, 3]]


def test_costs_are_the_mean_squared_errors():
    truth, recon = torch.rand(2, 3, 1, 2, 2), torch.rand(2, 5, 1, 2, 2)
    expected = (truth[:, :, None] - recon[:, None]).square().flatten(3).mean(3)
    assert torch.allclose(pairwise_mse(truth, recon).float(), expected, atol=1e-6)


def test_another_number_of_records_is_refused():
    with pytest.raises(BadInput, match="as the truth"):
        assign(torch.rand(1, 3, 5), torch.rand(1, 2, 5))


def test_a_record_that_claims_nothing_leaves_the_others_their_matches():
    """By error alone the grey row would take the greyest truth, and the one right claim would lose it."""
    truth = torch.stack([torch.full((1, 4, 4), 0.45), torch.rand(1, 4, 4), torch.zeros(1, 4, 4)])[None]
    recon = torch.full_like(truth, 0.5)
    recon[0, 2] = 0.44
    assert assign(truth, recon, torch.tensor([[False, False, True]]))[0, 0] == 2
