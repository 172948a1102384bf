"""Mean squared error: the mean over all pixels and channels of (x - x')^2, for values in [0, 1].

Several released codes log something else under this name (GRNN the mean absolute error, FedKL the root,
CPL's notebooks the L2 norm), so their figures cannot be read beside ours.
"""

from __future__ import annotations

from torch import Tensor

from leakgauge.metrics._metric import KINDS, Metric


def mse(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...)."""
    return (truth - recon).square().mean(dim=(-3, -2, -1))


MSE = Metric(
    name="mse",
    summary="mean squared error per sample, values in [0, 1]",
    paper="Zhu et al. 2019 (DLG)",
    higher_is_better=False,
    low=0.0,
    high=1.0,
    applies_to=KINDS,
    compare=mse,
)
