"""The compact memory against the classic two-loop recursion, in float64 and with the awkward cases."""

import pytest
import torch
from torch import Tensor

from leakgauge.engine.lbfgs import Curvature

WIDTH = 9


class TwoLoops:
    """Nocedal and Wright 2006, algorithm 7.4, for one row, with a list of pairs."""

    def __init__(self, size: int) -> None:
        self.size, self.pairs, self.gamma = size, [], 1.0

    def store(self, s: Tensor, y: Tensor) -> None:
        if s @ y > 1e-10:
            self.pairs = [*self.pairs, (s, y)][-self.size :]
            self.gamma = float(s @ y / (y @ y))

    def forget(self) -> None:
        self.pairs, self.gamma = [], 1.0

    def direction(self, g: Tensor) -> Tensor:
        q, weights = g.clone(), []
        for s, y in reversed(self.pairs):
            a = (s @ q) / (s @ y)
            weights.append(a)
            q = q - a * y
        r = self.gamma * q
        for (s, y), a in zip(self.pairs, reversed(weights), strict=True):
            r = r + s * (a - (y @ r) / (s @ y))
        return -r


def pairs(count: int, rows: int, seed: int):
    """s, y = (nearly) a positive matrix times s, so that most pairs are accepted and some are not."""
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(rows, WIDTH, WIDTH, generator=g, dtype=torch.float64)
    matrix = root @ root.transpose(1, 2) / WIDTH + 0.2 * torch.eye(WIDTH, dtype=torch.float64)
    for _ in range(count):
        s = torch.randn(rows, WIDTH, generator=g, dtype=torch.float64)
        noise = 0.5 * torch.randn(rows, WIDTH, generator=g, dtype=torch.float64)
        yield s, torch.einsum("aij,aj->ai", matrix, s) + noise, torch.randn(rows, WIDTH, generator=g).double()


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_direction_is_the_two_loop_recursions(size, seed):
    """17 pairs through a ring of 1, 2 or 5; some rows skip a pair, some pairs bend the wrong way, one row forgets."""
    rows = 4
    memory, slow = (
        Curvature.empty(torch.zeros(rows, WIDTH, dtype=torch.float64), size),
        [TwoLoops(size) for _ in range(rows)],
    )
    for number, (s, y, g) in enumerate(pairs(17, rows, seed)):
        if number in (4, 11):
            y[1] = -y[1]  # negative curvature: refused
        learn = torch.tensor([True, True, number % 3 != 0, True])
        if number == 9:
            forgets = torch.tensor([False, False, False, True])
            memory.forget(forgets)
            slow[3].forget()
        ours = memory.store_and_direct(s, y, learn, g)
        for row in range(rows):
            if learn[row]:
                slow[row].store(s[row], y[row])
            torch.testing.assert_close(ours[row], slow[row].direction(g[row]), rtol=1e-9, atol=1e-10)
    assert memory.count.tolist()[3] <= 8


def test_without_pairs_it_is_the_bare_gradient():
    memory = Curvature.empty(torch.zeros(2, WIDTH), 3)
    g = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros_like(g)
    assert torch.equal(memory.store_and_direct(zero, zero, torch.tensor([True, False]), g), -g)  # no curvature either
    assert memory.count.tolist() == [0, 0]


def test_a_row_that_forgets_everything_is_as_new_though_its_slots_hold_old_pairs():
    used = Curvature.empty(torch.zeros(1, WIDTH, dtype=torch.float64), 4)
    new = Curvature.empty(torch.zeros(1, WIDTH, dtype=torch.float64), 4)
    yes = torch.tensor([True])
    for s, y, g in pairs(6, 1, seed=0):
        used.store_and_direct(1e3 * s, 1e3 * y, yes, g)
    used.forget(yes)
    for s, y, g in pairs(7, 1, seed=1):
        torch.testing.assert_close(used.store_and_direct(s, y, yes, g), new.store_and_direct(s, y, yes, g))


def test_a_remembered_step_is_the_newton_step_along_it():
    """The secant equation: H y = s for the newest pair."""
    memory = Curvature.empty(torch.zeros(2, WIDTH, dtype=torch.float64), 5)
    for s, y, _ in pairs(8, 2, seed=3):
        found = memory.store_and_direct(s, y, (s * y).sum(1) > 0, y)
        held = (s * y).sum(1) > 1e-10
        torch.testing.assert_close(found[held], -s[held], rtol=1e-8, atol=1e-9)


def test_rows_that_stay_keep_their_memory():
    whole = Curvature.empty(torch.zeros(3, WIDTH, dtype=torch.float64), 3)
    yes = torch.tensor([True] * 3)
    stream = list(pairs(6, 3, seed=5))
    for s, y, g in stream[:4]:
        whole.store_and_direct(s, y, yes, g)
    part = Curvature(**{name: tensor.clone() for name, tensor in vars(whole).items()})
    stays = torch.tensor([2, 0])
    part.keep(stays)
    for s, y, g in stream[4:]:
        of_all = whole.store_and_direct(s, y, yes, g)
        torch.testing.assert_close(part.store_and_direct(s[stays], y[stays], yes[:2], g[stays]), of_all[stays])
