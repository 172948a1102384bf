"""Weights that nobody told: read off where gradients have zeros, bounded where they have none."""

import pytest
import torch

from leakgauge.defenses.mixing import fusing_weights, guessed_weights

TRIALS, ENTRIES = 3, 4000


def sparse(clients: int, zeros: float = 0.5) -> torch.Tensor:
    """(T, M, P) updates in which entries come and go apart, as behind ReLUs."""
    g = torch.Generator().manual_seed(1)
    updates = torch.randn(TRIALS, clients, ENTRIES, generator=g)
    return updates * (torch.rand(updates.shape, generator=g) >= zeros)


def weights_of(clients: int, fusing: str, least: float = 0.5) -> torch.Tensor:
    drawn = [torch.Generator().manual_seed(s) for s in range(TRIALS)]
    return torch.stack([fusing_weights(clients, least, fusing, g) for g in drawn])


def mixtures_of(weights: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    return (weights @ updates.double()).float()  # as they are received


@pytest.mark.parametrize("fusing", ["random", "free"])
@pytest.mark.parametrize("clients", [2, 3, 5])
def test_zeros_give_the_weights_away(clients, fusing):
    weights, updates = weights_of(clients, fusing), sparse(clients)
    found, read = guessed_weights(mixtures_of(weights, updates), updates[:, -1], fusing, 0.5)
    assert read.all()
    torch.testing.assert_close(found, weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("clients", [2, 3, 5])
def test_without_zeros_the_weights_explain_the_own_update_and_keep_the_protocol(clients):
    weights, updates = weights_of(clients, "random"), sparse(clients, zeros=0)
    mixtures = mixtures_of(weights, updates)
    found, read = guessed_weights(mixtures, updates[:, -1], "random", 0.5)
    assert not read.any()
    torch.testing.assert_close(found.sum(2), torch.ones(TRIALS, clients, dtype=torch.float64))
    assert (found.diagonal(dim1=1, dim2=2) >= 0.5).all()
    own = torch.linalg.solve(found, mixtures.double())[:, -1]
    torch.testing.assert_close(own, updates[:, -1].double(), rtol=0, atol=1e-4)


def test_a_guess_is_nearer_than_the_mixture_as_a_rule():
    g = torch.Generator().manual_seed(2)
    weights = torch.stack([fusing_weights(3, 0.5, "random", g) for _ in range(60)])
    updates = torch.randn(60, 3, 200, generator=g)
    mixtures = mixtures_of(weights, updates).double()
    found, _ = guessed_weights(mixtures, updates[:, -1], "random", 0.5)
    apart = torch.linalg.solve(found, mixtures)[:, 0]
    guessed, taken = ((some - updates[:, 0]).norm(dim=1) for some in (apart, mixtures[:, 0]))
    assert guessed.median() < 0.8 * taken.median()


def test_trials_do_not_touch_each_other():
    weights, updates = weights_of(3, "random"), sparse(3)
    mixtures = mixtures_of(weights, updates)
    together, _ = guessed_weights(mixtures, updates[:, -1], "random", 0.5)
    alone, _ = guessed_weights(mixtures[[1]], updates[[1], -1], "random", 0.5)
    torch.testing.assert_close(together[[1]], alone)


def test_an_own_update_of_zeros_gives_finite_weights():
    weights, updates = weights_of(3, "random"), sparse(3)
    updates[:, -1] = 0
    found, read = guessed_weights(mixtures_of(weights, updates), updates[:, -1], "random", 0.5)
    assert torch.isfinite(found).all()
    assert not read.any()
