"""What the contract tests share: a small client whose update every attack and defense can be tried on."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
from torch import nn

from leakgauge.data import draw_victims, load, public_batch
from leakgauge.models import load_model
from leakgauge.types import Batch, DataSpec

with warnings.catch_warnings():  # typer 0.20 imports names that click 8.5 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import typer  # noqa: F401

SEEDS = (11, 12, 13)
_SMALL = {"lenet-dlg": "lenet-dlg:filters=4", "mlp": "mlp:hidden=16", "vit": "vit:embedding=24,depth=1"}


@pytest.fixture(scope="session")
def digits() -> DataSpec:
    return load("digits", "test").spec


@pytest.fixture(scope="session")
def victims() -> Batch:
    """(3, 1, 1, 8, 8): three clients with one digit each."""
    return draw_victims(load("digits", "test"), trials=len(SEEDS), batch_size=1, seed=5)


@pytest.fixture(scope="session")
def public() -> Batch:
    return public_batch(load("digits", "train"), 32, seed=5)


@pytest.fixture(scope="session")
def model_named(digits: DataSpec) -> Callable[[str], nn.Module]:
    return lambda name: load_model(_SMALL[name], digits, seed=3)
