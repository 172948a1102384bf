"""What servers share that read samples off the first layer: weight over bias gradient, and the proof behind it.

A candidate and a label say what a unit's bias gradient would be if the candidate were there alone. If some label gives
what was observed, it was: two samples add up to something else, unless one of them leaves next to nothing, and then
the ratio is the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad

from leakgauge.client.fedavg import local_steps
from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.errors import NotApplicable
from leakgauge.matching.labels import inferred_labels
from leakgauge.types import BLANK, CROSS_ENTROPY, NLL_ON_LOGITS, Client, Fact, Observation, Reconstruction
from leakgauge.types.attack import TamperingServer

PASS = 32  # candidates at once
_SLACK = 0.01  # of the range [0, 1]: far above rounding, far below what two samples of opposite sign lead to


@dataclass(frozen=True)
class FirstLayerServer(TamperingServer):
    """One that reads inputs off the rows of a first dense layer."""

    tier: ClassVar[str] = "quick"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = (CROSS_ENTROPY, NLL_ON_LOGITS)


@dataclass(frozen=True)
class Candidates:
    """What the rows of each trial may hold."""

    inputs: Tensor  # (T, M, d)
    hit: Tensor  # (T, M) bool: the candidates that may be claimed
    sure: Tensor  # (T, M) the surest are claimed, in falling order
    proven: Tensor  # (T,) how many are certain, or likely where nothing can be proven
    checked: bool  # whether they could be proven


def claim(candidates: Candidates, observation: Observation, notes: Iterable[str], began: float) -> Reconstruction:
    """The surest N of the candidates; the other rows are blank. Labels are in no particular order."""
    data, samples = observation.fact(Fact.INPUT_SPEC), observation.fact(Fact.NUM_SAMPLES)
    order = torch.where(candidates.hit, candidates.sure, -1).argsort(dim=1, descending=True, stable=True)[:, :samples]
    trials = torch.arange(len(order), device=order.device)[:, None]
    hit, rest = candidates.hit[trials, order], samples - order.shape[1]
    inputs = torch.where(hit[..., None], candidates.inputs[trials, order], BLANK)
    inputs = pad(inputs, (0, 0, 0, rest), value=BLANK).reshape(len(order), samples, *data.shape)
    proven = candidates.proven.clamp_max(samples)
    claimed = pad(hit, (0, rest), value=False)
    labels, objective, ones = _labels(observation), 1 - proven.to(inputs) / samples, torch.ones(len(order)).long()
    found = Reconstruction(inputs, labels, objective, ones, 0 * ones, time.perf_counter() - began, claimed=claimed)
    return replace(found, notes=tuple(notes), certified=proven if candidates.checked else None)


def _labels(observation: Observation) -> Tensor | None:
    """The labels (T, N) by the rules of cross-entropy, where the last layer can be read."""
    try:
        return (
            inferred_labels(observation)
            if observation.fact(Fact.LOCAL_TRAINING).kind_of_loss == CROSS_ENTROPY
            else None
        )
    except NotApplicable:
        return None


def in_range(inputs: Tensor) -> Tensor:
    """(T, M) bool: is every entry of (T, M, d) one that a sample may have?"""
    return (inputs.amin(2) > -_SLACK) & (inputs.amax(2) < 1 + _SLACK)


def coarseness(size: Tensor, local: Client, samples: int) -> float:
    """How far off an entry of the gradient may be because weights of this size were rounded before the difference."""
    if local.kind == "fedsgd":
        return 0.0
    return float(size) * torch.finfo(size.dtype).eps / (local.lr * local_steps(samples, local))


def expected_alone(samples: int, bins: int) -> float:
    """How many of n independent samples sit alone in one of k equally likely bins: n (1 - 1/k)^(n - 1)."""
    return float(samples * (1 - 1 / bins) ** (samples - 1))


def explained(
    net: nn.Module,
    passes: Iterable[tuple[Tensor, Tensor, Tensor]],
    observed: Tensor,
    tolerance: float,
    rounding: Tensor,
    observation: Observation,
) -> Tensor | None:
    """(T, M) bool: is the observed bias gradient (T, M) that of one candidate alone, under some label?

    `passes` are inputs (S, ...), what is varied (S, ...) and along which tangent, T x M candidates in all. `rounding`
    (T or 1, 1) is what an observed value may be off by. None where it cannot be known: BatchNorm that mixes the samples
    of a batch, or a layer without a second derivative.
    """
    if uses_batch_statistics(net):
        return None
    loss: str = observation.fact(Fact.LOCAL_TRAINING).kind_of_loss
    try:
        slopes = torch.cat([_slopes(net, *one, loss) for one in passes])
    except (RuntimeError, NotImplementedError):
        return None
    expected = slopes.reshape(*observed.shape, -1) / observation.fact(Fact.NUM_SAMPLES)  # (T, M, C)
    # A slope near zero is a difference of large ones.
    size = expected.abs() + 0.1 * expected.abs().amax(2, keepdim=True)
    enough: Tensor = (expected - observed[..., None]).abs() <= tolerance * size + rounding[..., None]
    return enough.any(2) & (observed != 0)


def _slopes(net: nn.Module, inputs: Tensor, varied: Tensor, tangent: Tensor, loss: str) -> Tensor:
    """(S, C): by how much each sample's loss rises if `varied` (S, ...) moves along the tangent, for every label."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # the fused attention cannot be differentiated twice
        logits = net(inputs)
        # J^T v is linear in v, so its derivative along the tangent is J times the tangent: what each logit gains.
        v = torch.zeros_like(logits, requires_grad=True)
        (pulled,) = torch.autograd.grad(logits, varied, v, create_graph=True)
        (rising,) = torch.autograd.grad(pulled, v, tangent)
    if loss != CROSS_ENTROPY:
        return torch.neg(rising)
    return torch.sub((torch.softmax(logits.detach(), -1) * rising).sum(-1, keepdim=True), rising)
