"""Gradients of one shared model for T trials side by side, differentiable in inputs and targets.

The slow loop it must equal: for each trial, `torch.autograd.grad(loss(model(x[t]), y[t]), parameters)`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.engine.layerwise import fits, has_wide_convolution, layerwise_gradients


def working_model(model: nn.Module, batchnorm: str) -> nn.Module:
    """A private copy whose forward pass has no side effects: eval mode throughout, and BatchNorm as told.

    Frozen parameters stay frozen: they are no part of the update.

    With `batchnorm="train"` the layers normalise by the statistics of the batch at hand. Their running
    statistics are taken off the copy, because vmap cannot update them in place.
    """
    copied = copy.deepcopy(model).eval()
    if batchnorm == "train":
        for module in copied.modules():
            if isinstance(module, _BatchNorm):
                module.track_running_stats = False
                module.running_mean = module.running_var = module.num_batches_tracked = None
    return copied


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Trainable parameters by name, cut off from autograd."""
    return {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of (N, C) logits against (N,) labels or (N, C) probabilities."""
    log_p = torch.log_softmax(logits, -1)
    if targets.dim() == logits.dim():
        return -(targets * log_p).sum(-1).mean()
    return -log_p.gather(-1, targets.unsqueeze(-1)).mean()


def trial_gradients(
    model: nn.Module,
    inputs: Tensor,  # (T, N, *shape)
    targets: Tensor,  # (T, N) labels or (T, N, C) probabilities
    weights: Mapping[str, Tensor] | None = None,  # name -> (T, *parameter) when each trial has its own
) -> dict[str, Tensor]:
    """Mean-loss gradients by parameter name: (T, *parameter).

    Small networks run under vmap; wide convolutions layer by layer on a GPU and trial by trial on a CPU.

    `model` must come from `working_model`. The result is differentiable in `inputs`, soft `targets` and `weights`.
    """

    def loss(parameters: Mapping[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, dict(parameters), (x,)), y)

    if weights is None and has_wide_convolution(model):
        if inputs.device.type == "cpu":  # two cores are busy with one trial, and its activations fit the cache
            return one_by_one(model, inputs, targets)
        layerwise = layerwise_gradients(model, inputs, targets, cross_entropy) if fits(model) else None
        if layerwise is not None:
            return layerwise
    shared = weights is None
    parameters = parameters_of(model) if weights is None else dict(weights)
    gradients: dict[str, Tensor] = vmap(grad(loss), in_dims=(None if shared else 0, 0, 0))(parameters, inputs, targets)
    return gradients


def one_by_one(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The plain loop over trials, as differentiable as the rest."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    rows = []
    with torch.enable_grad():
        for x, y in zip(inputs, targets, strict=True):
            loss = cross_entropy(model(x), y)
            rows.append(torch.autograd.grad(loss, list(named.values()), create_graph=True))
    return {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(named)}
