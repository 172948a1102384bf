"""Gradients of one shared model for T trials side by side, differentiable in inputs and targets.

The slow loop it must equal: for each trial, `torch.autograd.grad(loss(model(x[t]), y[t]), parameters)`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.engine.batchnorm import fix_statistics, use_batch_statistics
from leakgauge.engine.layerwise import fits, has_convolution, layerwise_gradients
from leakgauge.engine.losses import Loss, cross_entropy
from leakgauge.engine.penalties import collecting, with_penalties
from leakgauge.engine.written_out_norms import WrittenOutNorms

_LOOPED: WeakSet[nn.Module] = WeakSet()  # models whose trials cannot run side by side


def working_model(model: nn.Module, batchnorm: str) -> nn.Module:
    """A private copy whose forward pass has no side effects: eval mode throughout, and BatchNorm as told.

    Frozen parameters stay frozen: they are no part of the update.

    With `batchnorm="train"` its layers normalise by the statistics of the batch at hand.
    """
    copied = copy.deepcopy(model).eval()
    on_gpu = next(copied.parameters()).is_cuda
    if batchnorm == "train":
        use_batch_statistics(copied)
    elif on_gpu:  # on a CPU torch's own layer is the faster one
        fix_statistics(copied)
    if model in _LOOPED:
        _LOOPED.add(copied)
    if on_gpu and has_convolution(copied):
        copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # what tensor cores read
    return copied


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Trainable parameters by name, cut off from autograd."""
    return {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}


@sdpa_kernel(SDPBackend.MATH)  # the fused attention kernels cannot be differentiated twice
def trial_gradients(
    model: nn.Module,
    inputs: Tensor,  # (T, N, *shape)
    targets: Tensor,  # (T, N) labels or (T, N, C) probabilities
    weights: Mapping[str, Tensor] | None = None,  # name -> (T, *parameter) when each trial has its own
    buffers: Mapping[str, Tensor] | None = None,  # name -> (T, *buffer) where each trial has its own
    loss_of: Loss = cross_entropy,
    differentiable: bool = True,
) -> dict[str, Tensor]:
    """Mean-loss gradients by parameter name: (T, *parameter).

    Convolutions run layer by layer on a GPU. On a CPU wide ones run trial by trial. Everything else runs under vmap.

    `model` must come from `working_model`. The result is differentiable in `inputs`, soft `targets` and `weights`,
    unless that is not wanted, which saves memory and time where a loop over trials or over layers is taken.
    """
    own = dict(buffers or {})
    if model in _LOOPED:
        return one_by_one(model, inputs, targets, weights, own, loss_of, differentiable)
    if weights is None and not own:
        if inputs.device.type == "cpu" and has_convolution(model, wide=True):
            return one_by_one(
                model, inputs, targets, loss_of=loss_of, differentiable=differentiable
            )  # one trial fills the cores, and its activations fit the cache
        if inputs.device.type != "cpu" and has_convolution(model) and fits(model):
            layerwise = layerwise_gradients(model, inputs, targets, loss_of, differentiable=differentiable)
            if layerwise is not None:
                return layerwise

    def loss(parameters: Mapping[str, Tensor], own: Mapping[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        with collecting() as penalties, WrittenOutNorms():
            logits = functional_call(model, {**parameters, **own}, (x,))
        return with_penalties(loss_of(logits, y), penalties)

    shared = weights is None
    parameters = parameters_of(model) if weights is None else dict(weights)
    side_by_side = vmap(grad(loss), in_dims=(None if shared else 0, 0, 0, 0))
    gradients: dict[str, Tensor] = side_by_side(parameters, own, inputs, targets)
    return gradients


def runs_one_by_one(model: nn.Module) -> bool:
    """Do the trials of this model run one after another? Then whoever differentiates does best to do likewise."""
    return model in _LOOPED or (has_convolution(model, wide=True) and not next(model.parameters()).is_cuda)


def run_one_by_one(model: nn.Module) -> None:
    """The trials of this model and of its working copies run one after another: they cannot share a pass."""
    _LOOPED.add(model)


@sdpa_kernel(SDPBackend.MATH)
def one_by_one(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    weights: Mapping[str, Tensor] | None = None,
    buffers: Mapping[str, Tensor] | None = None,
    loss_of: Loss = cross_entropy,
    differentiable: bool = True,
) -> dict[str, Tensor]:
    """The plain loop over trials, as differentiable as the rest unless told otherwise."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    rows = []
    with torch.enable_grad():
        for t, (x, y) in enumerate(zip(inputs, targets, strict=True)):
            mine = named if weights is None else {n: _watched(weights[n][t]) for n in named}
            own = {n: b[t] for n, b in (buffers or {}).items()}
            with collecting() as penalties:
                logits = model(x) if weights is None and not own else functional_call(model, {**mine, **own}, (x,))
            loss = with_penalties(loss_of(logits, y), penalties)
            rows.append(torch.autograd.grad(loss, list(mine.values()), create_graph=differentiable))
    if len(rows) == 1:  # a view: the gradient of a large model is not copied
        return {name: g[None] for name, g in zip(named, rows[0], strict=True)}
    return {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(named)}


def _watched(weight: Tensor) -> Tensor:
    """The same tensor with gradients taken in it."""
    return weight if weight.requires_grad else weight.detach().requires_grad_()
