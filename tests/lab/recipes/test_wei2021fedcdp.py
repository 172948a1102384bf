"""The accounting of the paper (METHODS G15), and noise that keeps the promises of the table."""

from __future__ import annotations

import pytest

from leakgauge.lab.recipes.wei2021fedcdp.recipe import SIGMAS, Accounting
from leakgauge.lab.reproduce.running import run_one


def epsilon(**more) -> float:
    (found,) = run_one(Accounting(**more), "cpu", None).figures["epsilon"]
    return found


@pytest.mark.parametrize(
    ("q", "steps", "known", "digits"), [(0.01, 10_000, 0.8227, 4), (0.01, 300, 0.143, 3), (0.1, 100, 0.849, 3)]
)
def test_known_figures(q, steps, known, digits):
    assert round(epsilon(q=q, sigma=6, steps=steps, accountant="plain"), digits) == known
    assert epsilon(q=q, sigma=6, steps=steps) < known


@pytest.mark.parametrize("promised", SIGMAS)
def test_noise_keeps_its_promise_and_is_hardly_more_than_needed(promised):
    assert epsilon(q=0.01, sigma=SIGMAS[promised], steps=300, accountant="plain") <= promised
    assert epsilon(q=0.01, sigma=SIGMAS[promised] - 0.003, steps=300, accountant="plain") > promised


def test_no_noise_promises_nothing():
    for accountant in ("plain", "rdp"):
        assert run_one(Accounting(q=0.01, sigma=0, steps=10, accountant=accountant), "cpu", None).figures == {}
