"""The loudest eighth of the samples is held against all, gradients as they are."""

import pytest
import torch
from torch import nn

from leakgauge.checks import scores
from leakgauge.types import Batch


def linear() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    return model


def share(sizes: list[float]) -> dict[str, float]:
    """Of a model that gives 1/2 to both classes: a sample's gradient has the norm sqrt((|x|^2 + 1) / 2)."""
    inputs = torch.zeros(1, len(sizes), 3)
    inputs[0, :, 0] = torch.tensor(sizes).square().sub(1).clamp_min(0).sqrt()
    samples = Batch(inputs, torch.zeros(1, len(sizes), dtype=torch.long))
    return dict(scores(linear(), samples=samples)["dominated-gradients"])


def test_the_share_is_that_of_the_loudest_eighth():
    assert share([9.0, 1, 1, 1, 1, 1, 1, 1])["0"] == pytest.approx(9 / 16)
    assert share([4.0, 4.0] + [1.0] * 14)["0"] == pytest.approx(8 / 22)
    assert share([2.0] * 8)["0"] == pytest.approx(1 / 8)


def test_few_samples_or_none_say_nothing():
    assert share([2.0] * 3) == {}
    assert scores(linear())["dominated-gradients"] == {}
