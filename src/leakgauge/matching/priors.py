"""What pictures tend to look like, for attacks that need more than the gradient."""

from __future__ import annotations

from torch import Tensor

_ROUND = 1e-4  # rounds the corner of |d| so that second-order optimisers can use it


def total_variation(inputs: Tensor) -> Tensor:
    """Smoothed anisotropic total variation, summed: (T, N, C, H, W) -> (T,). Zero for inputs that are no pictures."""
    if inputs.dim() != 5:
        return inputs.new_zeros(len(inputs))
    down = inputs[..., 1:, :] - inputs[..., :-1, :]
    right = inputs[..., 1:] - inputs[..., :-1]
    return sum((((d * d + _ROUND).sqrt() - _ROUND**0.5).flatten(1).sum(1) for d in (down, right)), inputs.new_zeros(()))


def mean_variation(inputs: Tensor) -> Tensor:
    """Anisotropic total variation as Inverting Gradients has it: mean |vertical| + mean |horizontal| difference, (T,).

    0 for a constant picture, 2 for a checkerboard of zeros and ones. Zero for inputs that are no pictures.
    """
    if inputs.dim() != 5:
        return inputs.new_zeros(len(inputs))
    down = inputs[..., 1:, :] - inputs[..., :-1, :]
    right = inputs[..., 1:] - inputs[..., :-1]
    return down.abs().flatten(1).mean(1) + right.abs().flatten(1).mean(1)
