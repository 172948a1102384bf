"""Gradients of one shared model for T trials side by side, differentiable in inputs and targets.

The slow loop it must equal: for each trial, `torch.autograd.grad(loss(model(x[t]), y[t]), parameters)`. What a client
computes, its own gradient, is never differentiated again: there large batches run in parts. A hundred pictures of 224
pixels through VGG16 keep 11 GB of activations alive if they go through together.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.engine.batchnorm import WrittenOutNorms, fix_statistics, use_batch_statistics, uses_batch_statistics
from leakgauge.engine.layerwise import fits, has_convolution, layerwise_gradients
from leakgauge.engine.losses import Loss, averaged_over, cross_entropy
from leakgauge.engine.memory import fitting
from leakgauge.engine.penalties import collecting
from leakgauge.engine.precision import outside_autocast
from leakgauge.engine.written_out import WrittenOut, nothing_computed_again, recurrent_written_out, without_stale_graphs

_MOST = 2**30  # bytes of a client's activations at once if trials run one by one: more is no faster
_LOOPED: WeakSet[nn.Module] = WeakSet()  # models with trials that cannot run side by side


def working_model(model: nn.Module, batchnorm: str) -> nn.Module:
    """A private copy whose forward pass has no side effects: eval mode throughout; frozen parameters stay frozen.

    With `batchnorm="train"` BatchNorm layers normalise by the statistics of the batch at hand.
    """
    without_stale_graphs(model)
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

    Convolutions run layer by layer on a GPU. On a CPU wide ones run trial by trial: one trial fills the cores, and its
    activations fit the cache. A client under autocast rounds where torch rounds, which no other way does. Everything
    else runs under vmap.

    `model` must come from `working_model`. The result is differentiable in `inputs`, soft `targets` and `weights`,
    unless that is not wanted, which saves memory and time where a loop over trials or over layers is taken.
    """
    own = dict(buffers or {})
    shared, on_cpu = weights is None and not own, inputs.device.type == "cpu"
    rounds_as_a_client = not differentiable and torch.is_autocast_enabled(inputs.device.type)
    if model in _LOOPED or rounds_as_a_client or (shared and on_cpu and has_convolution(model, wide=True)):
        return one_by_one(model, inputs, targets, weights, own, loss_of, differentiable)
    if shared and not on_cpu and has_convolution(model) and fits(model):
        layerwise = layerwise_gradients(model, inputs, targets, loss_of, differentiable=differentiable)
        if layerwise is not None:
            return layerwise

    def loss(parameters: Mapping[str, Tensor], own: Mapping[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        with collecting() as penalties, WrittenOutNorms(), WrittenOut(), nothing_computed_again():
            logits = functional_call(model, {**parameters, **own}, (x,))
        return sum(penalties, loss_of(logits, y))

    parameters = parameters_of(model) if weights is None else dict(weights)
    side_by_side = vmap(grad(loss), in_dims=(None if weights is None else 0, 0, 0, 0))
    gradients: dict[str, Tensor] = side_by_side(parameters, own, inputs, targets)
    return gradients


def runs_one_by_one(model: nn.Module) -> bool:
    """Do the trials of this model run one after another? Then it is best to differentiate trial by trial too."""
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
    """The plain loop over trials, as differentiable as the rest unless switched off."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    rows = []
    with torch.enable_grad():
        for t, (x, y) in enumerate(zip(inputs, targets, strict=True)):
            own_weights = named if weights is None else {n: weights[n][t] for n in named}
            mine = {n: w if w.requires_grad else w.detach().requires_grad_() for n, w in own_weights.items()}
            own = {n: b[t] for n, b in (buffers or {}).items()}
            as_it_is = weights is None and not own
            with collecting() as penalties, nothing_computed_again(), _for_device(x):
                logits = model(x) if as_it_is else functional_call(model, {**mine, **own}, (x,))
            loss = sum(penalties, loss_of(logits, y))
            with outside_autocast(x.device):
                found = torch.autograd.grad(
                    loss, list(mine.values()), create_graph=differentiable, materialize_grads=True
                )
            rows.append(found)
    if len(rows) == 1:  # a view: the gradient of a large model is not copied
        return {name: g[None] for name, g in zip(named, rows[0], strict=True)}
    return {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(named)}


def _for_device(x: Tensor) -> AbstractContextManager[object]:
    return recurrent_written_out() if x.is_cuda else nullcontext()


def client_gradients(
    model: nn.Module, inputs: Tensor, targets: Tensor, loss_of: Loss = cross_entropy
) -> dict[str, Tensor]:
    """`trial_gradients`, detached, with the samples of a trial in as many parts as memory asks for.

    A mean loss is the mean over parts, weighed by what counts in each. Where BatchNorm or the loss looks at the whole
    batch, that stays whole.
    """
    samples = size = inputs.shape[1]
    whole = None if uses_batch_statistics(model) else averaged_over(loss_of, targets)
    if whole is not None:
        kept, looped = kept_bytes(model, inputs[0, :1]), runs_one_by_one(model)
        size = fitting(kept if looped else kept * len(inputs), inputs.device)
        size = min(size, max(1, _MOST // kept)) if looped else size
    total: dict[str, Tensor] = {}
    for x, y in zip(torch.split(inputs, size, 1), torch.split(targets, size, 1), strict=True):
        found = trial_gradients(model, x, y, loss_of=loss_of, differentiable=False)
        if x.shape[1] == samples:
            return {name: g.detach() for name, g in found.items()}
        counted = averaged_over(loss_of, y)
        assert whole is not None
        assert counted is not None
        for name, g in found.items():  # a part in which nothing counts has no mean
            share = (counted / whole).view(-1, *[1] * (g.dim() - 1)).to(g)
            part = torch.where(share > 0, share * g.detach(), 0)
            total[name] = total[name].add_(part) if name in total else part
    return total


def kept_bytes(model: nn.Module, sample: Tensor) -> int:
    """What autograd keeps alive of one sample's pass: the activations, parameters not counted."""
    own = {p.data_ptr() for p in model.parameters()}
    alive: dict[int, Tensor] = {}  # by place; alive until all are counted, or a place could be used twice

    def count(tensor: Tensor) -> None:  # autograd keeping the tensor itself would tie it to its own graph for good
        if tensor.data_ptr() not in own:
            alive.setdefault(tensor.untyped_storage().data_ptr(), tensor.detach())

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda _: sample):  # never asked for
        model(sample.clone()).sum()  # a view would count the whole batch behind it
    kept = sum(tensor.untyped_storage().nbytes() for tensor in alive.values())
    return max(1, kept)
