"""Small models to look at: clean ones, and the changes that a server would make to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from leakgauge.checks.inspection import checks
from leakgauge.checks.inspection import measure as measure_all
from leakgauge.models import load_model
from leakgauge.types import DataSpec

GREY = DataSpec("grey", (1, 16, 16), 10, "image")
Score = Callable[..., dict[str, float]]


@pytest.fixture
def grey() -> DataSpec:
    return GREY


@pytest.fixture
def built() -> Callable[..., nn.Module]:
    """built("mlp:hidden=32") for small grey pictures."""
    return lambda spec, seed=0, data=GREY: load_model(spec, data, seed)


@pytest.fixture
def dense() -> Callable[..., nn.Sequential]:
    """dense(40, 32, 24, 10): linear layers of these widths with ReLU between them, named "0", "2" ..."""

    def make(*widths: int, seed: int = 0) -> nn.Sequential:
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for inputs, units in itertools.pairwise(widths):
            layers += [nn.Linear(inputs, units), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return make


@pytest.fixture
def score() -> Score:
    """score("drift", model, ...): what one check gives each layer."""

    def one(check: str, source: nn.Module | dict[str, Tensor], *more: object, **named: object) -> dict[str, float]:
        assert check in checks()
        measured = measure_all(source, *more, **named)  # type: ignore[arg-type]
        return {layer: m.score for layer, m in measured[check].items()}

    return one


@pytest.fixture
def pruned() -> Callable[[nn.Module, float], nn.Module]:
    """The same model without the smallest `share` of each layer's weights, in place."""

    def prune(model: nn.Module, share: float) -> nn.Module:
        with torch.no_grad():
            for p in model.parameters():
                if p.dim() > 1:
                    p.mul_(p.abs() > p.abs().flatten().quantile(share))
        return model

    return prune


@pytest.fixture
def quantized() -> Callable[[nn.Module, int], nn.Module]:
    """The same model with weights of so many bits, in place."""

    def round_off(model: nn.Module, bits: int) -> nn.Module:
        with torch.no_grad():
            for p in model.parameters():
                step = p.abs().max().clamp(min=1e-9) / (2 ** (bits - 1) - 1)
                p.copy_((p / step).round() * step)
        return model

    return round_off
