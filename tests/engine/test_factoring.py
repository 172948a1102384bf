"""Thin factors: which parameters get them, and how near they come."""

import pytest
import torch

from leakgauge.engine.factoring import best_approximation, factors_length, is_factored, power_approximation

MATRICES = torch.randn(2, 9, 14, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("shape", "rank", "yes"),
    [
        ((10,), 1, False),
        ((), 1, False),
        ((9, 14), 1, True),
        ((9, 14), 5, True),
        ((9, 14), 6, False),
        ((12, 3, 5, 5), 2, True),
        ((2, 2), 1, False),
    ],
)
def test_who_is_factored(shape, rank, yes):
    assert is_factored(torch.Size(shape), rank) is yes


def test_a_kernel_is_a_matrix_with_a_row_per_output():
    assert factors_length((12, 3, 5, 5), 2) == 2 * (12 + 75)


@pytest.mark.parametrize("rank", [1, 3])
def test_the_best_approximation_leaves_the_smaller_singular_values(rank):
    """Eckart and Young."""
    found = best_approximation(MATRICES, rank)
    values = torch.linalg.svdvals(MATRICES)
    torch.testing.assert_close(torch.linalg.svdvals(MATRICES - found)[:, 0], values[:, rank])
    assert (torch.linalg.matrix_rank(found) == rank).all()


@pytest.mark.parametrize("iterations", [1, 2])
def test_power_iteration_projects_and_comes_near_the_best(iterations):
    start = torch.randn(2, 14, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = power_approximation(MATRICES, start, iterations)
    columns = torch.linalg.svd(found, full_matrices=False).U[..., :3]
    torch.testing.assert_close(found, columns @ columns.mT @ MATRICES)
    best = (MATRICES - best_approximation(MATRICES, 3)).norm()
    assert best < (MATRICES - found).norm() < MATRICES.norm()


def test_many_power_iterations_find_the_best():
    start = torch.randn(2, 14, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(
        power_approximation(MATRICES, start, 300), best_approximation(MATRICES, 2), rtol=1e-4, atol=1e-5
    )
