"""Whatever runs through autograd runs: sixty small networks, each against autograd on one trial after another."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.engine.ways import choose_way
from leakgauge.engine.written_out import nothing_computed_again
from leakgauge.models.loading import freeze_unused

sys.path.insert(0, str(Path(__file__).parent))
from _zoo import CLASSES, ZOO, built

TRIALS, SAMPLES = 3, 2
CLOSE = {torch.float64: 1e-9, torch.float32: 1e-5}  # relative to the size of what is compared
ALONE = {  # the networks whose trials run one after another, and what is said to be the reason
    "gru-packed": "layer 'body' (GRU)",
    "filled": "the model's own forward (Own)",
    "branching": "the model's own forward (Own)",
}
Weights = Mapping[str, Tensor]


def plain(network: nn.Module, inputs: Tensor, labels: Tensor, weights: Weights | None) -> list[dict[str, Tensor]]:
    """Autograd on a copy of the network for each trial; the parameters that a client shares."""
    found = []
    for t in range(len(inputs)):
        own = copy.deepcopy(network).to(inputs.dtype)
        if weights is not None:
            own.load_state_dict({name: weight[t] for name, weight in weights.items()}, strict=False)
        named = {name: p for name, p in own.named_parameters() if p.requires_grad}
        with nothing_computed_again():  # torch's first way of it refuses `torch.autograd.grad`
            loss = F.cross_entropy(own(inputs[t]), labels[t])
        slopes = torch.autograd.grad(loss, list(named.values()), create_graph=True)
        found.append(dict(zip(named, slopes, strict=True)))
    return found


def slope_of(gradients: Mapping[str, Tensor], inputs: Tensor, directions: Mapping[str, Tensor]) -> Tensor:
    """The derivative in the inputs of a sum over all entries of the gradients, each with a weight of its own."""
    total = sum((directions[name] * g).sum() for name, g in gradients.items())
    assert isinstance(total, Tensor)
    (slope,) = torch.autograd.grad(total, inputs, materialize_grads=True)
    return slope


@sdpa_kernel(SDPBackend.MATH)
def compared(network: nn.Module, inputs: Tensor, labels: Tensor, weights: Weights | None) -> None:
    close, x = CLOSE[inputs.dtype], inputs.clone().requires_grad_()
    found = trial_gradients(working_model(network, "eval").to(x.dtype), x, labels, weights)
    each = plain(network, x, labels, weights)
    slow = {name: torch.stack([gradients[name] for gradients in each]) for name in each[0]}
    assert found.keys() == slow.keys()
    largest = max(float(g.detach().norm()) for g in slow.values())
    for name, expected in slow.items():  # what is zero but for rounding has no relative precision
        assert float((found[name] - expected).detach().norm()) <= close * max(
            float(expected.detach().norm()), 1e-3 * largest
        ), name
    g = torch.Generator().manual_seed(3)
    directions = {n: torch.randn(t.shape, generator=g, dtype=torch.float64).to(t) for n, t in slow.items()}
    mine, theirs = slope_of(found, x, directions), slope_of(slow, x, directions)
    assert float((mine - theirs).norm()) <= close * float(theirs.norm())
    assert float(theirs.detach().norm()) > 0


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("numbers", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ZOO)
def test_gradients_and_their_derivatives_are_those_of_plain_autograd(name: str, numbers: torch.dtype) -> None:
    network, data = built(name)
    freeze_unused(network, data.shape)
    said = choose_way(network, data)
    assert said.startswith(f"one after another, because {ALONE[name]}" if name in ALONE else "side by side")
    g = torch.Generator().manual_seed(1)
    inputs = torch.rand(TRIALS, SAMPLES, *data.shape, generator=g, dtype=torch.float64).to(numbers)
    labels = torch.randint(CLASSES, (TRIALS, SAMPLES), generator=g)
    network.to(numbers)
    compared(network, inputs, labels, None)
    moved = {
        n: torch.stack([p.detach() * (1 + 0.1 * t) for t in range(TRIALS)])
        for n, p in network.named_parameters()
        if p.requires_grad
    }
    compared(network, inputs, labels, moved)
