"""What a client minimises: a mean over its samples, of the model's output against targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.types import CROSS_ENTROPY, NLL_ON_LOGITS, Client

Loss = Callable[[Tensor, Tensor], Tensor]  # output and targets of one client's samples -> the mean loss
IGNORED = -100  # a position of a sequence with this label does not count


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of (N, ..., C) logits against (N, ...) labels or (N, ..., C) probabilities."""
    return _entropy(torch.log_softmax(logits, -1), targets)


def weighted_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float, weights: tuple[float, ...]) -> Tensor:
    """With label smoothing and class weights, as `torch.nn.functional.cross_entropy` has them."""
    log_p, weight = torch.log_softmax(logits, -1), logits.new_tensor(weights or 1.0)
    if targets.dim() == logits.dim():
        classes = targets.shape[-1]
        shares = targets * (1 - smoothing) + smoothing / classes
        return -(weight * shares * log_p[..., :classes]).sum(-1).mean()
    counted = targets != IGNORED
    held = targets.where(counted, 0)
    own = counted * (weight[held] if weights else torch.ones_like(log_p[..., 0]))
    hard = -(own * log_p.gather(-1, held.unsqueeze(-1))[..., 0]).sum()
    spread = -(counted * (weight * log_p).sum(-1)).sum() / logits.shape[-1]
    return ((1 - smoothing) * hard + smoothing * spread) / own.sum()


def nll_on_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """The negative logit of the true class: cross-entropy without its softmax."""
    if targets.dim() == logits.dim():
        return -(targets * logits).sum(-1).mean()
    return -logits.gather(-1, targets.unsqueeze(-1)).mean()


def _entropy(log_p: Tensor, targets: Tensor) -> Tensor:
    if targets.dim() == log_p.dim():  # a network of several rounds has one output more, which is no class
        return -(targets * log_p[..., : targets.shape[-1]]).sum(-1).mean()
    if targets.dim() < 2:
        return -log_p.gather(-1, targets.unsqueeze(-1)).mean()
    counted = targets != IGNORED
    picked = log_p.gather(-1, targets.where(counted, 0).unsqueeze(-1))[..., 0]
    return -(picked * counted).sum() / counted.sum()


def _numbers(distance: Callable[[Tensor, Tensor], Tensor], output: Tensor, targets: Tensor) -> Tensor:
    """Outputs (N, 1) against targets (N,) are compared as (N,)."""
    if output.dim() == targets.dim() + 1 and output.shape[-1] == 1:
        output = output[..., 0]
    return distance(output, targets.to(output.dtype))


LOSSES: Mapping[str, Loss] = {
    CROSS_ENTROPY: cross_entropy,
    NLL_ON_LOGITS: nll_on_logits,
    "nll": _entropy,  # of a model that returns log-probabilities
    "bce": partial(_numbers, F.binary_cross_entropy_with_logits),
    "mse": partial(_numbers, F.mse_loss),
    "l1": partial(_numbers, F.l1_loss),
    "huber": partial(_numbers, F.huber_loss),
}


def loss_of(local: Client) -> Loss:
    """The loss that a client's settings name, the user's own function included."""
    if catalog.is_own(local.loss):
        return partial(_own, local.loss, catalog.own(local.loss))
    if not local.label_smoothing and not local.class_weights:
        return LOSSES[local.loss]
    if local.loss != CROSS_ENTROPY:
        do = "leave label_smoothing and class_weights out"
        raise BadInput("local: loss", allowed=f"{CROSS_ENTROPY} with smoothing or weights", got=local.loss, do=do)
    return partial(weighted_cross_entropy, smoothing=local.label_smoothing, weights=local.weights_of_classes)


def _own(name: str, function: Callable[[Any, Any], Any], output: Tensor, targets: Tensor) -> Tensor:
    loss = function(output, targets.to(output.dtype) if targets.is_floating_point() else targets)
    if not isinstance(loss, Tensor) or loss.dim():
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise BadInput(f"loss {name!r}", allowed="one number, a mean over the samples", got=got, do="average it")
    return loss
