"""M10's modified network: shapes, parameter count, nothing pooled."""

import torch

from leakgauge.models import load_model, parameter_count
from leakgauge.types import DataSpec


def test_shapes_and_parameters():
    data = DataSpec("colour", (3, 32, 32), 100, "image")
    model = load_model("mkor-modified", data, seed=0)
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 100)
    assert parameter_count(model) == 2 * (3 * 3 * 25 + 3) + 3072 * 100 + 100
