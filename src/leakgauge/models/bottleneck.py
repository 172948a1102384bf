"""A variational bottleneck: features are replaced by a draw around a code of theirs, and decoded again."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.engine.penalties import add_penalty


class VariationalBottleneck(nn.Module):
    """(N, d) -> (N, d) through K numbers: z = mu + std * noise, decoded by a linear layer.

    `noise` (K,) is a buffer that is not saved, in plain view like the mask of `MaskedLinear`. It is zero, its mean, in
    the model that everyone has; a client sets its own draw. `beta` weighs the divergence of N(mu, std^2) from N(0, 1),
    which the layer adds to the client's loss.
    """

    noise: Tensor

    def __init__(self, features: int, width: int, beta: float) -> None:
        super().__init__()
        self.statistics = nn.Linear(features, 2 * width)
        self.decode = nn.Linear(width, features)
        self.beta = beta
        self.register_buffer("noise", torch.zeros(width), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        mu, raw = self.statistics(x).chunk(2, -1)  # (N, K) each
        std = F.softplus(raw)
        if self.beta:
            add_penalty(self.beta * divergence(mu, std))
        decoded: Tensor = self.decode(mu + std * self.noise)
        return decoded


def divergence(mu: Tensor, std: Tensor) -> Tensor:
    """KL(N(mu, std^2) || N(0, 1)) in bits, summed over the K numbers (N, K) and averaged over the samples."""
    nats = -0.5 * (1 + 2 * std.log() - mu**2 - std**2).sum(-1)
    return nats.mean() / math.log(2)
