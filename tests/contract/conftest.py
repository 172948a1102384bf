"""What the contract tests share: a small client whose update every attack and defense can be tried on."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
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


@pytest.fixture
def global_randomness_untouched() -> Callable[[], Iterator[None]]:
    """A block that fails if it draws from (or reseeds) the generators that everybody shares."""

    @contextmanager
    def block() -> Iterator[None]:
        before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
        yield
        assert torch.equal(torch.get_rng_state(), before[0]), "torch's global generator moved"
        assert np.array_equal(np.random.get_state()[1], before[1]), "NumPy's global generator moved"
        assert random.getstate() == before[2], "Python's global generator moved"

    return block
