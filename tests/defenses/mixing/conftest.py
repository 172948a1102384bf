"""Private digits and small models for them."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from leakgauge.data import draw_victims, load
from leakgauge.models import load_model
from leakgauge.types import Batch, DataSpec


@pytest.fixture(scope="session")
def digits():
    return load("digits")


@pytest.fixture
def spec(digits) -> DataSpec:
    return digits.spec


@pytest.fixture
def victims(digits) -> Callable[..., Batch]:
    """victims(trials, samples, dtype)"""

    def draw(trials: int = 2, samples: int = 3, dtype: torch.dtype = torch.float64) -> Batch:
        batch = draw_victims(digits, trials, samples, seed=0)
        return Batch(batch.inputs.to(dtype), batch.labels)

    return draw


@pytest.fixture
def model(digits) -> Callable[..., nn.Module]:
    """model(spec) for digits, in float64."""

    def build(spec: str = "mlp:hidden=6,activation=sigmoid") -> nn.Module:
        return load_model(spec, digits.spec, seed=0).double()

    return build
