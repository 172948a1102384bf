"""How uneven pictures are, for attacks that need more than the gradient. Zero for inputs that are no pictures."""

from __future__ import annotations

from torch import Tensor

_ROUND = 1e-4  # rounds the corner of |d| so that second-order optimisers can use it


def differences(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """(A, N, C, H, W) -> of neighbours, down and across: (A, ...) each, empty where there are none."""
    if inputs.dim() != 5:
        return inputs.new_zeros(len(inputs), 0), inputs.new_zeros(len(inputs), 0)
    return inputs[..., 1:, :] - inputs[..., :-1, :], inputs[..., 1:] - inputs[..., :-1]


def total_variation(inputs: Tensor) -> Tensor:
    """Smoothed anisotropic total variation, summed: (A, N, C, H, W) -> (A,)."""
    rounded: list[Tensor] = [((d * d + _ROUND).sqrt() - _ROUND**0.5).flatten(1) for d in differences(inputs)]
    return rounded[0].sum(1) + rounded[1].sum(1)


def mean_variation(inputs: Tensor) -> Tensor:
    """Anisotropic total variation as Inverting Gradients has it: mean |vertical| + mean |horizontal| difference, (A,).

    0 for a constant picture, 2 for a checkerboard of zeros and ones.
    """
    down, right = (d.abs().flatten(1).sum(1) / max(1, d[0].numel()) for d in differences(inputs))
    return down + right


def squared_variation(inputs: Tensor) -> Tensor:
    """Twice the mean squared difference of neighbours, down and across: (A, N, C, H, W) -> (A,)."""
    down, right = (d.square().flatten(1).sum(1) / max(1, d[0].numel()) for d in differences(inputs))
    return 2 * (down + right)


def absolute_variation(inputs: Tensor) -> Tensor:
    """The sum of absolute differences of neighbours in a picture, its mean over pictures: (A, N, C, H, W) -> (A,)."""
    down, right = (d.abs().flatten(1).sum(1) for d in differences(inputs))
    return (down + right) / inputs.shape[1]
