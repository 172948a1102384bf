"""A network at the weights of several rounds at once: one client, the same samples, the same lock, moving weights.

The gradient of the sum of the rounds' losses has, at each round's weights, that round's own update. So an attacker who
keeps a client's updates of several rounds sees one update of this network, and every attack works on it as it is.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.engine.randomness import generator
from leakgauge.models.locked_norm import locks_in

FIRST_ROUND = "rounds.0"  # the network of the first one, by name
_CLOSEST = 1e-12  # to certainty; the logarithm behind it stays finite


class SeveralRounds(nn.Module):
    """(N, ...) -> (N, C + 1), whose plain cross-entropy is the sum over rounds of the cross-entropies.

    The outputs are the sums over rounds of the log-probabilities of each class, and one more for what is missing to a
    total probability of one: with it the softmax changes nothing. Locks are shared, everything else is each round's.
    """

    def __init__(self, model: nn.Module, rounds: int, drift: float, seed: int = 0) -> None:
        super().__init__()
        self.rounds = nn.ModuleList([model])
        for number in range(1, rounds):
            later = moved(copy.deepcopy(model), drift, f"drift/{number}", seed)
            for name, lock in locks_in(model).items():
                parent, _, leaf = name.rpartition(".")
                setattr(later.get_submodule(parent), leaf, _TheSame(lock))
            self.rounds.append(later)

    @property
    def names(self) -> list[str]:
        """Of the rounds' networks, as submodules."""
        return [f"rounds.{number}" for number in range(len(self.rounds))]

    def forward(self, x: Tensor) -> Tensor:
        likely = torch.stack([F.log_softmax(net(x), -1) for net in self.rounds]).sum(0)
        missing = torch.log((1 - likely.exp().sum(-1, keepdim=True)).clamp_min(_CLOSEST))
        return torch.cat((likely, missing), -1)


class _TheSame(nn.Module):
    """The layer of an earlier round. In a tuple, so that it is listed once, where it was first."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = (layer,)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer[0](x)
        return out


def moved(model: nn.Module, drift: float, role: str, seed: int) -> nn.Module:
    """Every weight moved at random, by `drift` of the root mean square of its tensor: in place of others' training."""
    random = generator(seed, role)
    with torch.no_grad():
        for weight in model.parameters():
            step = torch.randn(weight.shape, generator=random).to(weight)
            weight.add_(drift * weight.square().mean().sqrt() * step)
    return model
