"""Normalising layers as attacks need them: without side effects, and cheap and right to differentiate twice.

With fixed statistics BatchNorm is one scale and one shift per channel. Written out like that its second derivative is a
few products; torch's own goes through the general formula, which costs a dozen passes over the activations.

Under `vmap` torch takes the gradient of a normalising layer's weight from the mean and the spread that the forward pass
saved, and treats both as constants: the gradient is right, its derivative in the inputs is not. Without weight and bias
all of it is right, so the layer runs without them, and they are multiplied and added behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode


class _FixedStatistics:
    """Mixed into the BatchNorm classes: eval mode written out."""

    def forward(self: _BatchNorm, input: Tensor) -> Tensor:  # type: ignore[misc]
        assert self.running_mean is not None
        assert self.running_var is not None
        shape = (1, -1, *[1] * (input.dim() - 2))
        scale = (self.running_var + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -self.running_mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        return input * scale.view(shape) + shift.view(shape)


class FixedBatchNorm1d(_FixedStatistics, nn.BatchNorm1d):
    """`nn.BatchNorm1d` in eval mode."""


class FixedBatchNorm2d(_FixedStatistics, nn.BatchNorm2d):
    """`nn.BatchNorm2d` in eval mode."""


_FIXED: dict[type, type] = {nn.BatchNorm1d: FixedBatchNorm1d, nn.BatchNorm2d: FixedBatchNorm2d}


def fix_statistics(model: nn.Module) -> None:
    """Every BatchNorm layer normalises by its running statistics from now on; names and values stay as they are."""
    for module in model.modules():
        if type(module) in _FIXED and module.running_mean is not None:
            module.__class__ = _FIXED[type(module)]


def has_batchnorm(model: nn.Module) -> bool:
    """Is there a layer that `batchnorm` in the client's training is about?"""
    return any(isinstance(m, _BatchNorm) for m in model.modules())


def uses_batch_statistics(model: nn.Module) -> bool:
    """Does any layer normalise by the batch at hand, so that samples change one another's results?"""
    return any(isinstance(m, _BatchNorm) and m.running_mean is None for m in model.modules())


def use_batch_statistics(model: nn.Module) -> None:
    """Every BatchNorm layer normalises by the batch at hand; vmap could not update running statistics, so they go."""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None


_SHORT = (torch.bfloat16, torch.float16)
_LAYER = ("input", "normalized_shape", "weight", "bias", "eps", "cudnn_enable")
_BATCH = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
_INSTANCE = (*_BATCH[:5], "use_input_stats", "momentum", "eps")
_ENTRY = ("input", "weight", "bias", "running_mean", "running_var")
_ARGUMENTS: Mapping[Callable[..., Any], tuple[str, ...]] = {  # in the order in which each is called
    F.layer_norm: _LAYER,
    torch.layer_norm: _LAYER,
    F.batch_norm: _BATCH,
    torch.batch_norm: (*_ENTRY, *_BATCH[5:], "cudnn_enabled"),
    F.instance_norm: _INSTANCE,
    torch.instance_norm: (*_ENTRY, *_INSTANCE[5:], "cudnn_enabled"),
}


class WrittenOutNorms(TorchFunctionMode):
    """While it lasts, weight and bias of LayerNorm, BatchNorm and InstanceNorm act behind the layer, not in it.

    A layer of `torch.nn` may call them, or a forward of the user's own.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        names = _ARGUMENTS.get(func)
        if names is None:
            return func(*args, **(kwargs or {}))
        named = dict(zip(names, args, strict=False)) | (kwargs or {})
        weight, bias = named.get("weight"), named.get("bias")
        entered: Tensor = named["input"]
        if entered.dtype in _SHORT:  # under autocast: torch computes such a layer in float32 as well
            named["input"] = entered.float()
        normal: Tensor = func(**(named | {"weight": None, "bias": None}))
        if names is not _LAYER:  # per channel, the channels on axis 1
            shape = (-1, *[1] * (normal.dim() - 2))
            weight, bias = (None if part is None else part.view(shape) for part in (weight, bias))
        if weight is not None:
            normal = normal * weight
        normal = normal if bias is None else normal + bias
        return normal.to(entered.dtype) if entered.dtype in _SHORT else normal
