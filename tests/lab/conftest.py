"""A recipe small enough for a test: digits, an MLP, the closed-form attack and a few steps of CPL."""

from __future__ import annotations

import pytest

from leakgauge.lab.reproduce.recipe import Cell, Recipe, Run, Table
from leakgauge.types import Finding, Scenario


def scenario(**more) -> Scenario:
    return Scenario(**{"model": "mlp:hidden=16", "data": "digits", "attacks": ("linear",), "trials": 2} | more)


@pytest.fixture
def small_scenario():
    return scenario


@pytest.fixture
def small_recipe() -> Recipe:
    bare = Run(scenario(), seeds=2)
    pruned = Run(scenario(defenses=("prune:share=0.95",)))
    return Recipe(
        name="small",
        summary="Two tables",
        paper="Nobody 2020, Nothing",
        note="All of it is made up.",
        tables=(
            Table(
                "1",
                "bare updates",
                "as ever",
                "A note.",
                (
                    Cell("linear", "digits", bare, {"psnr": 30.0, "recognised": None}, quick=1),
                    Cell("linear", "faces", Run(scenario(data="lfw")), {"psnr": 20.0}),
                ),
            ),
            Table(
                "2",
                "pruned updates",
                "as ever",
                "Another note.",
                (
                    Cell("50 %", "plain", pruned, {"psnr": None}),
                    Cell("50 %", "adaptive", pruned, {"psnr": None}, variant="adaptive"),
                ),
            ),
        ),
    )


def finding(trial: int = 0, **more) -> Finding:
    """A victim of CPL, solved after ten steps unless said otherwise."""
    record = {"mse": 0.01, "psnr": 20.0, "ssim": 0.9}
    given = {
        "attack": "cpl",
        "defense": "none",
        "adaptive": False,
        "trial": trial,
        "seed": trial,
        "scores": record | {"label_accuracy": 1.0},
        "records": (record,),
        "objective": 1e-5,
        "steps": 10,
        "spec": "cpl:absolute_threshold=0.0001",
    }
    return Finding(**given | more)


@pytest.fixture
def victim():
    return finding
