"""METHODS D4: random probes give the Frobenius norm of the whole Jacobian, and the all-ones product does not."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

from leakgauge.engine.jacobian_norms import all_ones_norms, jacobian_norms


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(8, 3))


@pytest.fixture
def samples():
    g = torch.Generator().manual_seed(1)
    return torch.rand(6, 1, 4, 4, generator=g), torch.tensor([0, 1, 2, 0, 1, 2])


def slow_norms(net, inputs, labels):
    """The whole Jacobian of each sample's gradient, entry by entry."""
    weights = {n: p.detach() for n, p in net.named_parameters()}

    def gradient(x, y):
        return grad(lambda w: nn.functional.cross_entropy(functional_call(net, w, (x[None],)), y[None]))(weights)

    whole = vmap(jacrev(gradient))(inputs, labels)
    return {n: float(j.flatten(1).norm(dim=1).mean()) for n, j in whole.items()}


def test_many_probes_give_the_norm_of_the_whole_jacobian(net, samples):
    exact, estimate = slow_norms(net, *samples), jacobian_norms(net, *samples, probes=200, seed=0)
    assert list(estimate.mean) == [n for n, _ in net.named_parameters()]
    for name, value in exact.items():
        assert estimate.mean[name] == pytest.approx(value, rel=0.1), name


def test_every_input_entry_in_turn_gives_the_norm_exactly(net, samples):
    found = jacobian_norms(net, *samples, probes=0, seed=0)
    assert dict(found.mean) == pytest.approx(slow_norms(net, *samples), rel=1e-5)


def test_the_squared_norm_is_unbiased_with_one_probe(net, samples):
    inputs, labels = (s[:1] for s in samples)
    exact = slow_norms(net, inputs, labels)["0.weight"]
    draws = torch.tensor([jacobian_norms(net, inputs, labels, 1, seed).mean["0.weight"] for seed in range(100)]) ** 2
    assert abs(draws.mean() - exact**2) < 4 * draws.std() / 10


def test_the_error_shrinks_with_the_number_of_samples(net, samples):
    inputs, labels = samples
    few = jacobian_norms(net, inputs, labels, 50, 0)
    many = jacobian_norms(net, inputs.repeat(9, 1, 1, 1), labels.repeat(9), 50, 0)
    for name, error in few.error.items():
        assert 0 < many.error[name] < 0.7 * error


def test_the_same_seed_gives_the_same_norms(net, samples):
    assert jacobian_norms(net, *samples, 2, 5) == jacobian_norms(net, *samples, 2, 5)
    assert jacobian_norms(net, *samples, 2, 5) != jacobian_norms(net, *samples, 2, 6)


def test_the_all_ones_product_sees_no_risk_in_a_last_linear_layer(net, samples):
    """The rows of its gradient sum to zero over classes (METHODS D4)."""
    norms = all_ones_norms(net, *samples)
    assert norms.mean["3.weight"] < 1e-7
    assert norms.mean["0.weight"] > 1e-4
