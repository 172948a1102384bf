"""Normalising layers whose gradients can be differentiated once more side by side.

Under `vmap` torch takes the gradient of such a layer's weight from the mean and the spread that the forward pass saved,
and treats both as constants: the gradient is right, its derivative in the inputs is not. Without weight and bias all of
it is right, so the layer runs without them, and they are multiplied and added behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

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

    Whoever calls them: a layer of `torch.nn`, or a forward of one's own.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        names = _ARGUMENTS.get(func)
        if names is None:
            return func(*args, **(kwargs or {}))
        told = dict(zip(names, args, strict=False)) | (kwargs or {})
        weight, bias = told.get("weight"), told.get("bias")
        normal: Tensor = func(**(told | {"weight": None, "bias": None}))
        if names is not _LAYER:  # per channel, the channels on axis 1
            shape = (-1, *[1] * (normal.dim() - 2))
            weight, bias = (None if part is None else part.view(shape) for part in (weight, bias))
        if weight is not None:
            normal = normal * weight
        return normal if bias is None else normal + bias
