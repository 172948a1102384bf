"""BatchNorm statistics as a prior (Yin et al. 2021): the guess should look, layer by layer, like the batch did.

Per BatchNorm layer, the mean and variance of each channel of what enters it, over a trial's samples and pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Statistics = Mapping[str, tuple[Tensor, Tensor]]  # layer -> mean and variance, (C,) or (A, C)


def running_statistics(model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """The averages (C,) that the layers have kept; none of a layer that never saw a batch: its zeros say nothing."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None and module.running_var is not None:
            count = module.num_batches_tracked
            if count is None or int(count) > 0:
                found[name] = (module.running_mean.detach(), module.running_var.detach())
    return found


def batch_statistics(model: nn.Module, inputs: Tensor, together: bool) -> dict[str, tuple[Tensor, Tensor]]:
    """Of every trial's own samples, (A, N, *sample) -> (A, C) each; differentiable in the inputs.

    `model` comes from `working_model`. With `together` all trials share one pass, which is right unless the layers
    normalise by the batch at hand.
    """
    if not together:
        each = [_passed(model, one[None]) for one in inputs]
        return {
            name: (torch.cat([row[name][0] for row in each]), torch.cat([row[name][1] for row in each]))
            for name in each[0]
        }
    return _passed(model, inputs)


def statistics_gap(found: Statistics, wanted: Statistics) -> Tensor:
    """(A,): distance of means plus distance of variances, as norms over channels, averaged over the layers wanted.

    Means in units of the layer's spread and variances in units of themselves, so that it is about 1 for a poor guess
    in any network: without that, layers with large activations would drown the others.
    """
    tiny = torch.finfo(next(iter(found.values()))[0].dtype).tiny
    parts = []
    for name, (mean, variance) in wanted.items():
        spread, own = torch.linalg.vector_norm(variance.sqrt(), dim=-1), torch.linalg.vector_norm(variance, dim=-1)
        parts.append(torch.linalg.vector_norm(found[name][0] - mean, dim=1) / spread.clamp_min(tiny))
        parts.append(torch.linalg.vector_norm(found[name][1] - variance, dim=1) / own.clamp_min(tiny))
    return torch.stack(parts).sum(0) / len(wanted)


def _passed(model: nn.Module, inputs: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """One forward pass over all samples of all trials."""
    found: dict[str, tuple[Tensor, Tensor]] = {}
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm):

                def note(_: nn.Module, args: tuple[Tensor, ...], name: str = name) -> None:
                    entered = args[0].reshape(*inputs.shape[:2], *args[0].shape[1:])  # (A, N, C, ...)
                    over = [d for d in range(1, entered.dim()) if d != 2]
                    found[name] = (entered.mean(over), entered.var(over, unbiased=False))

                hooks.enter_context(module.register_forward_pre_hook(note))
        model(inputs.flatten(0, 1))
    return found
