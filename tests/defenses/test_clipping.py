"""An attacker who knows of clipping clips a guess in the same way, and knows what noise reaches the mean."""

import pytest
import torch

from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses._clipping import CLIENT, SAMPLE, WHOLE, Clipping
from leakgauge.defenses.clip import Clip
from leakgauge.engine.gradients import parameters_of, working_model
from leakgauge.models import load_model
from leakgauge.types import Client, threat_model


@pytest.fixture(scope="module")
def model():
    return load_model("mlp:hidden=8", load("digits").spec, 0)


@pytest.fixture(scope="module")
def batch():
    return draw_victims(load("digits"), trials=2, batch_size=3, seed=0)


@pytest.mark.parametrize("scope", ["whole", "layer"])
@pytest.mark.parametrize("norm", [0.05, 0.7, 100.0])
def test_the_guess_is_clipped_as_the_client_clips(model, batch, norm, scope):
    update = chain(client_step(Client()), Clip(norm, scope=scope))(model, batch, (0, 1))
    worker = working_model(model, "eval")
    mine = Clipping(norm, scope, SAMPLE).mean(worker, batch.inputs, batch.labels)
    own = {n: p.expand(2, *p.shape) for n, p in parameters_of(worker).items()}
    by_weights = Clipping(norm, scope, SAMPLE).mean(worker, batch.inputs, batch.labels, own)
    for name, tensor in update.tensors.items():
        torch.testing.assert_close(mine[name], tensor, rtol=1e-4, atol=1e-7, msg=name)
        torch.testing.assert_close(by_weights[name], tensor, rtol=1e-4, atol=1e-7, msg=name)


def test_it_has_a_slope(model, batch):
    inputs = batch.inputs.double().requires_grad_()
    worker = working_model(model, "eval").double()

    def value(x):
        return sum((g**2).sum() for g in Clipping(0.5, "layer", SAMPLE).mean(worker, x, batch.labels).values())

    (slope,) = torch.autograd.grad(value(inputs), inputs)
    way = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).double()
    measured = (value(inputs + 1e-6 * way) - value(inputs - 1e-6 * way)) / 2e-6
    assert float((slope * way).sum()) == pytest.approx(float(measured.detach()), rel=1e-4)


def test_distances_are_measured_in_the_bound_but_never_coarser(model, batch):
    local = Client("fedavg", epochs=2, lr=0.1)
    update = client_step(local)(model, batch, (0, 1))
    spec = load("digits").spec
    seen = observe(model, update, threat_model("honest-but-curious"), facts_about(model, batch, spec, local, None))
    assert Clipping(0.01, WHOLE, SAMPLE).length(seen) == 0.01
    assert Clipping(0.01, WHOLE, CLIENT).length(seen) == pytest.approx(0.05)
    assert Clipping(50.0, WHOLE, SAMPLE).length(seen) == 1
    parameters = sum(p.numel() for p in model.parameters())
    assert Clipping(1, WHOLE, SAMPLE).numbers_per_row(seen) >= 2 * parameters  # two samples more than one
    assert Clipping(0, WHOLE, SAMPLE).numbers_per_row(seen) == Clipping(1, WHOLE, CLIENT).numbers_per_row(seen) == 0
