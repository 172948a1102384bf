"""Sketches and factors against dense matrices."""

import pytest
import torch

from leakgauge.engine.compressing import (
    METHODS,
    best_approximation,
    factors_length,
    hadamard,
    is_factored,
    power_approximation,
    sketch_length,
    there_and_back,
)

ROWS = torch.randn(3, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("bits", [0, 1, 2, 5, 6, 7, 12, 13])
def test_the_transform_is_orthonormal_and_its_own_inverse(bits):
    rows = torch.randn(2, 2**bits, generator=torch.Generator().manual_seed(bits), dtype=torch.float64)
    turned = hadamard(rows)
    torch.testing.assert_close(turned.norm(dim=1), rows.norm(dim=1))
    torch.testing.assert_close(hadamard(turned), rows)


def test_the_transform_by_hand():
    found = hadamard(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    torch.testing.assert_close(found, torch.tensor([[5.0, -1.0, -2.0, 0.0]]))


def test_a_transform_over_several_axes_is_one_by_the_recursion():
    rows = ROWS.new_tensor(range(256))[None] % 7
    half = rows.reshape(2, 128)
    sums, differences = hadamard((half[0] + half[1])[None]), hadamard((half[0] - half[1])[None])
    torch.testing.assert_close(hadamard(rows), torch.cat((sums, differences), 1) / 2**0.5)


@pytest.mark.parametrize("method", METHODS)
def test_it_is_unbiased_over_3000_maps(method):
    row = torch.tensor([[1.0, -2.0, 0.5, 0.0, 3.0]], dtype=torch.float64)
    found = torch.cat([there_and_back(5, 0.4, method, seed, "w", row)(row) for seed in range(3000)])
    error = found.std(0) / 3000**0.5
    assert ((found.mean(0) - row[0]).abs() <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("method", METHODS)
def test_it_says_no_more_than_the_sketch_is_long(method):
    whole = there_and_back(100, 0.2, method, 0, "w", ROWS)(torch.eye(100, dtype=torch.float64))
    assert torch.linalg.matrix_rank(whole) <= sketch_length(100, 0.2) == 20
    torch.testing.assert_close(whole, whole.T)  # S^T S


@pytest.mark.parametrize("method", METHODS)
def test_it_is_linear_and_rows_do_not_mix(method):
    applied = there_and_back(100, 0.3, method, 0, "w", ROWS)
    torch.testing.assert_close(applied(2 * ROWS), 2 * applied(ROWS))
    torch.testing.assert_close(applied(ROWS[:1] + ROWS[1:2]), applied(ROWS)[:1] + applied(ROWS)[1:2])
    torch.testing.assert_close(applied(ROWS[1:2]), applied(ROWS)[1:2])


@pytest.mark.parametrize("method", METHODS)
def test_the_number_and_the_role_decide_the_map(method):
    one, same, other, elsewhere = (
        there_and_back(100, 0.3, method, seed, role, ROWS)(ROWS)
        for seed, role in ((0, "w"), (0, "w"), (1, "w"), (0, "b"))
    )
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)
    assert not torch.allclose(one, elsewhere)


def test_all_coordinates_of_a_rotation_lose_nothing():
    rows = ROWS[:, :64]
    torch.testing.assert_close(there_and_back(64, 1.0, "rotation", 0, "w", rows)(rows), rows)


@pytest.mark.parametrize(("entries", "size", "length"), [(100, 0.07, 7), (10, 0.25, 3), (1, 0.1, 1), (7, 1.0, 7)])
def test_the_length_is_the_share_rounded_up(entries, size, length):
    assert sketch_length(entries, size) == length


@pytest.mark.parametrize("method", METHODS)
def test_one_number_survives(method):
    row = torch.tensor([[3.0]])
    assert there_and_back(1, 0.5, method, 0, "b", row)(row).item() == pytest.approx(3.0)


@pytest.mark.parametrize("method", METHODS)
def test_it_has_a_slope_for_who_searches_through_it(method):
    x = ROWS.clone().requires_grad_()
    applied = there_and_back(100, 0.3, method, 0, "w", ROWS)
    (slope,) = torch.autograd.grad((applied(x) * ROWS).sum(), x)
    torch.testing.assert_close(slope, applied(ROWS))  # symmetric


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
