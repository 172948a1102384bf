"""One number is missing, the input's length, and the rest of the network tells it."""

import pytest
import torch

from leakgauge.attacks import linear
from leakgauge.attacks.linear import best_factor
from leakgauge.data import draw_victims, load
from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.models import load_model

AFFINE = (torch.full((64,), 2.0), torch.full((64,), -0.5))


@pytest.mark.parametrize("affine", [(torch.ones(64), torch.zeros(64)), AFFINE], ids=["plain", "normalised"])
@pytest.mark.parametrize("at_once", [1000, 7])
def test_the_length_is_found_whatever_the_tensors_scales(affine, at_once, monkeypatch):
    monkeypatch.setattr(linear, "fitting", lambda *_: at_once)
    spec = load("digits").spec
    batch = draw_victims(load("digits"), trials=3, batch_size=1, seed=0)
    worker = working_model(load_model("mlp:hidden=32", spec, 0), "eval")
    true = trial_gradients(worker, batch.inputs, batch.labels)
    observed = {n: g.detach() * s for (n, g), s in zip(true.items(), (0.01, 3.0, 0.2, 7.0), strict=True)}
    entering = batch.inputs.flatten(1) * affine[0] + affine[1]
    factors = torch.tensor([0.3, 1.0, 12.0])
    found = best_factor(worker, observed, entering / factors[:, None], affine, spec.shape, batch.labels[:, 0])
    torch.testing.assert_close(found, factors, rtol=1e-2, atol=0)
