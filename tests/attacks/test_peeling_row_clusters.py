"""Rows that agree: what they hold is found, mixtures are not taken for samples."""

import pytest
import torch
from torch import nn

from leakgauge.attacks.peeling import BehindFirstLayer, Rows, claimed_by_clusters
from leakgauge.matching.shared_precision import shared_precision
from leakgauge.types import CROSS_ENTROPY

ENTRIES, UNITS, CLASSES = 60, 400, 5


def claimed(shared, samples=8, seed=0, known=0, alike=False, scale=1.0):
    """Samples, labels and what is claimed of a rounded gradient, `known` of them being proven already."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(ENTRIES, UNITS), nn.ReLU(), nn.Linear(UNITS, CLASSES)).double()
    with torch.no_grad():
        net[0].bias -= 0.1
    x, y = torch.rand(samples, ENTRIES, dtype=torch.float64), torch.randint(CLASSES, (samples,))
    if alike:  # every unit that is on for one is on for all: there are nothing but mixtures
        x, y = 0.5 + 1e-3 * x, torch.zeros_like(y)
    loss = nn.functional.cross_entropy(net(x), y)
    weight, bias = (g.to(shared).double() for g in torch.autograd.grad(loss, (net[0].weight, net[0].bias)))
    ones = torch.ones(ENTRIES, dtype=torch.float64)
    grid = shared_precision([weight, bias])
    behind = BehindFirstLayer(net.requires_grad_(False), "0", (ENTRIES,), samples, CROSS_ENTROPY)
    rows = Rows(weight, bias, scale * ones, 0 * ones, grid.relative, 0.0, grid=grid)
    found = claimed_by_clusters(rows, grid, behind, (x[:known], y[:known]))
    return x, y, found


@pytest.mark.parametrize(("shared", "error"), [(torch.bfloat16, 0.02), (torch.float16, 0.003)])
def test_samples_are_found_with_their_labels_and_none_twice(shared, error):
    x, y, found = claimed(shared)
    apart = torch.cdist(found.inputs, x, p=float("inf"))
    nearest = apart.argmin(1)
    assert len(found.inputs) >= 6
    assert len(set(nearest.tolist())) == len(found.inputs)
    assert float(apart.min(1).values.max()) < error
    assert torch.equal(found.labels, y[nearest])
    assert (found.rows >= 2).all()


def test_what_is_proven_is_taken_out_and_not_claimed_again():
    x, _, found = claimed(torch.bfloat16, known=3)
    nearest = torch.cdist(found.inputs, x).argmin(1)
    assert len(found.inputs) >= 4
    assert not set(nearest.tolist()) & {0, 1, 2}


@pytest.mark.parametrize("seed", range(4))
def test_mixtures_that_agree_are_not_claimed(seed):
    _, _, found = claimed(torch.bfloat16, samples=4, seed=seed, alike=True)
    assert len(found.inputs) == 0
