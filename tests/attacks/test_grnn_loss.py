"""GRNN's loss: each part against its formula, the scales, and what does not count."""

import itertools

import pytest
import torch

from leakgauge.attacks.grnn import Loss, mean_gap, order
from leakgauge.matching.priors import absolute_variation, squared_variation
from leakgauge.metrics.distances import wasserstein

ONLY = {"mse": 0.0, "wd": 0.0, "cosine": 0.0}


def rows(seed, trials=2, sizes=(6, 4)):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(trials, size, generator=g, dtype=torch.float64) for size in sizes]


def joined(parts):
    return torch.cat(parts, 1)


def value(mine, theirs, known=None, **fields):
    return Loss(**fields)(theirs, known)(mine)


def test_the_gap_is_the_wasserstein_distance_of_all_tensors_together():
    mine, theirs = rows(0), rows(1)
    torch.testing.assert_close(mean_gap(theirs, None)(mine), wasserstein(joined(mine), joined(theirs)))


def test_it_is_the_least_work_over_all_ways_to_pair_the_values():
    mine, theirs = rows(0, trials=1, sizes=(3, 2)), rows(1, trials=1, sizes=(3, 2))
    a, b = joined(mine)[0], joined(theirs)[0]
    least = min((a - b[list(way)]).abs().sum() for way in itertools.permutations(range(5)))
    torch.testing.assert_close(value(mine, theirs, **ONLY | {"wd": 1.0})[0], least)


@pytest.mark.parametrize(
    ("fields", "formula"),
    [
        ({"mse": 2.0}, lambda a, b: 2 * (a - b).square().sum(1)),
        ({"mse": 2.0, "scale": "mean"}, lambda a, b: 2 * (a - b).square().mean(1)),
        ({"wd": 3.0}, lambda a, b: 3 * 10 * wasserstein(a, b)),
        ({"wd": 3.0, "scale": "mean"}, lambda a, b: 3 * wasserstein(a, b)),
        ({"wd": 3.0, "scale": "mixed"}, lambda a, b: 3 * wasserstein(a, b)),
        ({"wd": 3.0, "as_released": True}, lambda a, b: 3 * (a - b).norm(dim=1)),
        ({"cosine": 4.0}, lambda a, b: 4 * (1 - torch.cosine_similarity(a, b))),
    ],
)
def test_each_part_is_its_formula(fields, formula):
    mine, theirs = rows(0), rows(1)
    torch.testing.assert_close(value(mine, theirs, **ONLY | fields), formula(joined(mine), joined(theirs)))


def test_parts_add_up():
    mine, theirs = rows(0), rows(1)
    each = [value(mine, theirs, **ONLY | {name: weight}) for name, weight in (("mse", 1), ("wd", 2), ("cosine", 3))]
    torch.testing.assert_close(value(mine, theirs, mse=1, wd=2, cosine=3), sum(each))


def test_sums_are_the_means_times_the_number_of_entries():
    mine, theirs = rows(0), rows(1)
    torch.testing.assert_close(value(mine, theirs), 10 * value(mine, theirs, scale="mean"))


def test_the_sorted_term_does_not_see_the_order_and_the_released_one_does():
    theirs = rows(1, sizes=(10,))
    mine = [theirs[0].flip(1)]
    torch.testing.assert_close(value(mine, theirs, mse=0.0), torch.zeros(2, dtype=torch.float64))
    assert (value(mine, theirs, mse=0.0, as_released=True) > 0).all()


@pytest.mark.parametrize("fields", [{}, {"scale": "mean"}, {"as_released": True}, {"cosine": 1.0}], ids=repr)
def test_entries_that_do_not_count_change_nothing(fields):
    mine, theirs = rows(0), rows(1)
    known = [torch.rand(part.shape, generator=torch.Generator().manual_seed(2)) > 0.5 for part in theirs]
    other = [part + 5 * ~mask for part, mask in zip(mine, known, strict=True)]
    torch.testing.assert_close(value(other, theirs, known, **fields), value(mine, theirs, known, **fields))


@pytest.mark.parametrize("fields", [{}, {"scale": "mean"}, {"as_released": True}, {"cosine": 1.0}], ids=repr)
def test_slopes_are_those_of_finite_differences(fields):
    theirs = rows(1)
    mine = [part.requires_grad_() for part in rows(0)]
    assert torch.autograd.gradcheck(lambda *parts: value(list(parts), theirs, **fields), mine)


def test_slopes_are_finite_at_the_solution():
    theirs = rows(1)
    for fields in ({}, {"as_released": True}):
        mine = [part.clone().requires_grad_() for part in theirs]
        slopes = torch.autograd.grad(value(mine, theirs, **fields).sum(), mine)
        assert all(torch.isfinite(slope).all() for slope in slopes)


def board(height, width, pictures=2):
    return ((torch.arange(height)[:, None] + torch.arange(width)) % 2).float().expand(1, pictures, 3, height, width)


@pytest.mark.parametrize(("variation", "of_a_board"), [(squared_variation, 4.0), (absolute_variation, 3 * (40 + 42.0))])
def test_variation_of_a_board_is_known_and_of_a_plain_picture_zero(variation, of_a_board):
    assert variation(board(6, 8)).tolist() == [of_a_board]
    assert variation(board(6, 8, pictures=5)).tolist() == [of_a_board]  # a mean over pictures
    assert variation(torch.full((1, 1, 3, 6, 8), 0.3)).tolist() == [0.0]
    assert variation(torch.full((1, 1, 1, 1, 8), 0.3)).tolist() == [0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_are_those_of_a_sort(dtype):
    values = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    values[:, ::3] = 0.0  # many alike
    values[0, :5] = torch.tensor([-0.0, 1e-40, -1e-40, 3e38, -3e38])
    ranks = order(values)
    assert torch.equal(values.gather(1, ranks), values.sort(1).values)
    assert torch.equal(ranks.sort(1).values, torch.arange(1000).expand(3, -1))
