"""CMA-ES on many rows: finds minima, keeps rows apart, leaves global randomness alone, can be cut off."""

import sys
import time

import numpy as np
import pytest
import torch

from leakgauge.attacks.ggl import evolve
from leakgauge.errors import MissingExtra

GOALS = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0], [-1.0, -1.0, 2.0]])


def bowls(rows):
    scale = torch.tensor([1.0, 10.0, 100.0])
    return lambda z: ((z - GOALS[rows]) ** 2 * scale).sum(1)


def run(rows=(0, 1, 2), values=bowls, **changes):
    chosen = torch.tensor(rows)
    how = {"generations": 60, "population": 12} | changes
    return evolve(lambda some: values(chosen[some]), torch.zeros(len(rows), 3), [(7 + r, "e") for r in rows], **how)


def test_each_row_finds_its_own_minimum():
    found = run()
    torch.testing.assert_close(found.x, GOALS, rtol=0, atol=1e-2)
    assert (found.value < 1e-2).all()
    assert found.evaluations.tolist() == (12 * found.steps).tolist()
    assert found.finished.all()
    falls = found.trace.nan_to_num(nan=0.0)
    assert (falls[:, 1:] <= found.trace[:, :-1].nan_to_num(nan=0.0)).all()


def test_a_row_alone_gives_what_it_gives_among_others():
    together = run(generations=10)
    for row in range(3):
        assert torch.equal(run((row,), generations=10).x[0], together.x[row])


def test_global_randomness_is_left_alone_and_numpys_state_does_not_matter():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = run(generations=5)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    np.random.default_rng()
    assert torch.equal(run(generations=5).x, first.x)


def test_a_value_that_is_no_number_is_never_the_best():
    def holes(rows):
        return lambda z: torch.where(z[:, 0] > 0.2, torch.nan, bowls(rows)(z))

    found = run(values=holes, generations=20)
    assert torch.isfinite(found.value).all()
    assert (found.x[:, 0] <= 0.2).all()


def test_a_row_that_sees_no_more_to_gain_leaves():
    found = run(generations=2000)
    assert (found.steps < 2000).all()
    assert found.finished.all()


def test_a_deadline_ends_it_with_what_is_there():
    found = run(generations=10**6, until=time.monotonic() - 1)
    assert found.steps.tolist() == [1, 1, 1]
    assert found.finished.all()
    assert not found.interrupted


def test_an_interrupt_keeps_the_best_so_far():
    def stop(share):
        if share >= 0.5:
            raise KeyboardInterrupt

    found = run(generations=10, progress=stop)
    assert found.interrupted
    assert not found.finished.any()
    assert found.steps.tolist() == [5, 5, 5]
    assert torch.isfinite(found.value).all()


def test_without_the_extra_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(MissingExtra, match=r"pip install 'leakgauge\[generative\]'"):
        run()
