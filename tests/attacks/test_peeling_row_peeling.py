"""Peeling on layers made by hand: what each pass uncovers, and what it must leave alone."""

import dataclasses

import torch
from torch import nn

from leakgauge.attacks.peeling import BehindFirstLayer, Rows, peel
from leakgauge.types import CROSS_ENTROPY

ENTRIES, UNITS, CLASSES = 40, 120, 5


def made(samples, seed=0, offset=0.0):
    """A network whose units prefer to be off, a batch, and the gradients of its first layer."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(ENTRIES, UNITS), nn.ReLU(), nn.Linear(UNITS, CLASSES)).double()
    with torch.no_grad():
        net[0].bias -= offset
    x, y = torch.rand(samples, ENTRIES, dtype=torch.float64), torch.randint(CLASSES, (samples,))
    weight, bias = torch.autograd.grad(nn.functional.cross_entropy(net(x), y), (net[0].weight, net[0].bias))
    ones = torch.ones(ENTRIES, dtype=torch.float64)
    rows = Rows(weight, bias, ones, 0 * ones, torch.finfo(torch.float64).eps, 0.0)
    return x, y, rows, BehindFirstLayer(net.requires_grad_(False), "0", (ENTRIES,), samples, CROSS_ENTROPY)


def test_rows_of_two_samples_are_read_once_one_of_them_is_gone():
    x, y, rows, behind = made(6, offset=0.1)
    active = behind.outputs(x) > 0  # (N, H)
    alone = (active & (active.sum(0) == 1)).any(1)
    found = peel(rows, behind, solve=False)
    assert found.by_space
    assert found.passes > 1
    assert int(alone.sum()) < len(found.inputs) == 6
    apart = torch.cdist(found.inputs, x, p=float("inf"))
    assert float(apart.min(1).values.max()) < 1e-8
    assert torch.equal(found.labels, y[apart.argmin(1)])


def test_solved_and_computed_coefficients_find_the_same_samples():
    x, _, rows, behind = made(4, offset=0.1)
    for solve in (False, True):
        found = peel(rows, behind, solve)
        assert len(found.inputs) == 4
        assert float(torch.cdist(found.inputs, x, p=float("inf")).min(1).values.max()) < 1e-6


def test_an_input_that_was_scaled_and_shifted_is_given_back_as_it_was():
    x, _, rows, behind = made(3, offset=0.1)
    # The layer saw x = 2 u - 0.5; what is private is u.
    shifted = Rows(
        rows.weight,
        rows.bias,
        2 * torch.ones(ENTRIES).double(),
        -0.5 * torch.ones(ENTRIES).double(),
        rows.precision,
        0.0,
    )
    whole = nn.Sequential(_Affine(), *behind.net)
    found = peel(shifted, BehindFirstLayer(whole, "1", (ENTRIES,), 3, CROSS_ENTROPY), solve=False)
    assert len(found.inputs) == 3
    assert float(torch.cdist(found.inputs, (x + 0.5) / 2, p=float("inf")).min(1).values.max()) < 1e-8


class _Affine(nn.Module):
    def forward(self, x):
        return 2 * x - 0.5


def test_a_gradient_of_zeros_gives_nothing():
    _, _, rows, behind = made(3)
    empty = Rows(0 * rows.weight, 0 * rows.bias, rows.scale, rows.shift, rows.precision, 0.0)
    for solve in (False, True):
        assert len(peel(empty, behind, solve).inputs) == 0


def test_goes_on_with_units_that_are_off_where_no_row_holds_one_sample():
    """Units that like to be on: few are alone in a row, but many are alone in leaving a unit off."""
    x, y, rows, behind = made(20, offset=-0.4)
    without = peel(rows, behind, solve=False)
    found = peel(rows, dataclasses.replace(behind, second="2"), solve=False)
    assert len(without.inputs) < 10 < len(found.inputs)
    apart = torch.cdist(found.inputs, x, p=float("inf"))
    assert float(apart.min(1).values.max()) < 1e-7
    assert torch.equal(found.labels, y[apart.argmin(1)])
