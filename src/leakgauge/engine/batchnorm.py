"""BatchNorm as attacks need it: without side effects, and cheap to differentiate twice.

With fixed statistics the layer is one scale and one shift per channel. Written out like that its second derivative is a
few products; torch's own goes through the general formula, which costs a dozen passes over the activations.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


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
