"""What every model of the zoo must hold to: builds, is seeded, gives logits, can be differentiated twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from leakgauge import catalog
from leakgauge.client.observe import facts_about
from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.errors import NotApplicable
from leakgauge.models import load_model
from leakgauge.testing import _must as must
from leakgauge.types import Batch, Client, DataSpec

MODELS = catalog.find("models")
KINDS = (
    DataSpec("small", (1, 8, 8), 5, "image", mean=(0.3,), std=(0.4,)),
    DataSpec("pictures", (3, 32, 32), 5, "image", mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2)),
    DataSpec("large", (3, 64, 64), 5, "image", mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2)),
    DataSpec("table", (12,), 2, "tabular"),
)
SMALL = {"width": 2, "filters": 2, "hidden": 6}
every_model = pytest.mark.parametrize("name", MODELS)


def small_spec(name: str) -> Any:
    """The model with its size fields turned down, where it has any."""
    model = MODELS[name]()
    for field, value in SMALL.items():
        model = model.with_fields(**{field: value}) or model
    return model


def fitting(name: str) -> DataSpec:
    """The smallest kind of data that the model accepts."""
    for data in KINDS:
        try:
            small_spec(name).build(data, seed=0)
        except NotApplicable:
            continue
        return data
    raise AssertionError(f"{name} accepts no usual kind of data")


def build(name: str, seed: int = 0) -> tuple[nn.Module, DataSpec]:
    data = fitting(name)
    return load_model(small_spec(name).spec, data, seed), data


@every_model
def test_describes_itself(name: str) -> None:
    model = MODELS[name]
    assert model.name == name == name.lower()
    assert model.summary
    assert model.paper
    assert model.__doc__


@every_model
def test_settings_survive_text(name: str) -> None:
    assert catalog.build("models", small_spec(name).spec) == small_spec(name)


@every_model
def test_same_seed_same_weights_another_seed_others(name: str) -> None:
    with must.draw_from_own_generators(name):
        first, _ = build(name, seed=1)
    torch.manual_seed(99)
    (second, _), (other, _) = build(name, seed=1), build(name, seed=2)
    for key, tensor in first.state_dict().items():
        assert torch.equal(second.state_dict()[key], tensor), key
    assert not all(torch.equal(other.state_dict()[n], p) for n, p in first.named_parameters())


@every_model
def test_gives_finite_logits_and_is_ready_to_use(name: str) -> None:
    model, data = build(name)
    with torch.no_grad():
        logits = model(torch.rand(3, *data.shape, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (3, data.classes)
    assert torch.isfinite(logits).all()
    assert not model.training
    names = [n for n, _ in model.named_parameters()]
    assert names
    assert len(set(names)) == len(names)
    assert all("." in n and n.rsplit(".", 1)[1] in ("weight", "bias") for n in names), names
    assert all(not n.split(".")[0].isdigit() for n in names), "layers are named, not numbered"
    assert all(p.requires_grad for p in model.parameters())


@every_model
def test_gradients_can_be_differentiated_in_the_inputs(name: str) -> None:
    model, data = build(name)
    worker = working_model(model, "eval")
    inputs = torch.rand(2, 1, *data.shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    gradients = trial_gradients(worker, inputs, torch.tensor([[0], [1]]))
    assert gradients.keys() == dict(model.named_parameters()).keys()
    (slope,) = torch.autograd.grad(sum(g.square().sum() for g in gradients.values()), inputs)
    assert torch.isfinite(slope).all()
    assert (slope.flatten(1).abs().sum(1) > 0).all(), "the update must depend on the private input"


@every_model
def test_the_facts_about_one_private_sample_can_be_collected(name: str) -> None:
    """Every audit does this, whatever the threat model: a deep network at its smallest size must not stop it."""
    model, data = build(name)
    batch = Batch(torch.rand(2, 1, *data.shape), torch.tensor([[0], [1]]))
    facts = facts_about(model, batch, data, Client(), None)
    assert facts
