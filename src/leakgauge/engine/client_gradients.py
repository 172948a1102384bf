"""What a client computes: its own gradient, once, never differentiated again. So large batches run in parts.

A hundred pictures of 224 pixels through VGG16 keep 11 GB of activations alive if they go through together.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.engine.gradients import one_by_one, runs_one_by_one, trial_gradients
from leakgauge.engine.losses import LOSSES, Loss, cross_entropy
from leakgauge.engine.memory import fitting

_MOST = 2**30  # bytes of activations at once where trials run one by one: more is no faster


def client_gradients(
    model: nn.Module, inputs: Tensor, targets: Tensor, loss_of: Loss = cross_entropy
) -> dict[str, Tensor]:
    """`trial_gradients`, detached, with the samples of a trial in as many parts as memory asks for.

    A mean loss is the weighted mean over parts, except where BatchNorm looks at the whole batch: that stays whole.
    """
    samples = inputs.shape[1]
    if uses_batch_statistics(model) or loss_of not in LOSSES.values():  # a weighted mean knows the whole batch only
        return _detached(trial_gradients(model, inputs, targets, loss_of=loss_of))
    looped = runs_one_by_one(model)
    kept = kept_bytes(model, inputs[0, :1])
    size = min(fitting(kept, inputs.device), max(1, _MOST // kept)) if looped else _all(kept, inputs)
    total: dict[str, Tensor] = {}
    for begin in range(0, samples, size):
        part = slice(begin, begin + size)
        x, y = inputs[:, part], targets[:, part]
        if looped:
            found = one_by_one(model, x, y, loss_of=loss_of, differentiable=False)
        else:
            found = _detached(trial_gradients(model, x, y, loss_of=loss_of))
        share = x.shape[1] / samples
        if not total:
            total = found if share == 1 else {name: g.mul_(share) for name, g in found.items()}
        else:
            for name, g in found.items():
                total[name].add_(g, alpha=share)
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


def _all(kept: int, inputs: Tensor) -> int:
    return fitting(kept * len(inputs), inputs.device)


def _detached(gradients: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: g.detach() for name, g in gradients.items()}
