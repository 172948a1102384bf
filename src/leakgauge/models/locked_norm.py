"""A normalisation that computes its scale and shift from a private key, through a lock that is private too.

Also a network at the weights of several rounds at once: one client, the same samples, the same lock, moving weights.
The gradient of the sum of the rounds' losses has, at each round's weights, that round's own update. So an attacker who
keeps a client's updates of several rounds sees one update of this network, and every attack works on it as it is.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.engine.randomness import generator, uniform
from leakgauge.errors import NotApplicable
from leakgauge.models.layers import activation
from leakgauge.settings import unknown_name

FIRST = "first"  # the first normalisation the model lists; without one, behind its first convolution or dense layer
INITS = ("default", "uniform")
FIRST_ROUND = "rounds.0"  # of `SeveralRounds`: the network of the first round, by name
_CLOSEST = 1e-12  # to certainty; the logarithm behind it stays finite
PARTS = ("key", "weight", "bias")
# Scale and shift before each activation, about as large as a fresh lock makes them. At zero ReLU has no slope.
_USUAL = {"identity": (1 / 3, 0.0), "sigmoid": (0.0, 0.0), "relu": (1 / 3, 1 / 6)}
ACTIVATIONS = tuple(_USUAL)


class LockedNorm(nn.Module):
    """(N, C, ...) -> (N, C, ...): gamma * norm(x) + beta with (gamma, beta) = act(weight @ key + bias), C numbers each.

    `key` (K,), `weight` (2C, K) and `bias` (2C,) are buffers that are not saved: they are no part of any update, unless
    `share_gradient` makes weight and bias parameters. `shift` (2C,) is zero: it is added before the activation, for an
    attacker who searches for what the lock makes of the key.

    The model that everyone has holds no lock: its weight is zero and its bias a guess. `publish` puts in the one that
    the server made. The key in it is always a guess.
    """

    key: Tensor
    weight: Tensor
    bias: Tensor
    shift: Tensor

    def __init__(self, norm: nn.Module, channels: int, length: int, act: str) -> None:
        super().__init__()
        self.norm = norm
        self.act = activation(act)
        self.public = False  # are weight and bias those of a lock that everyone has seen?
        self.register_buffer("key", torch.full((length,), 0.5), persistent=False)
        self.register_buffer("weight", torch.zeros(2 * channels, length), persistent=False)
        self.register_buffer("bias", torch.tensor(_USUAL[act]).repeat_interleave(channels), persistent=False)
        self.register_buffer("shift", torch.zeros(2 * channels), persistent=False)

    def publish(self, seed: int, init: str) -> None:
        """Put in the first lock that a server draws from `seed`."""
        first = draw_locks([seed], self, init)
        self.put({part: first[part][0] for part in ("weight", "bias")})
        self.public = True

    def share_gradient(self) -> None:
        """Make weight and bias parameters, so that their gradient is in every update."""
        for part in ("weight", "bias"):
            values = self._buffers.pop(part)
            self._non_persistent_buffers_set.discard(part)
            assert values is not None
            self.register_parameter(part, nn.Parameter(values))

    def put(self, parts: Mapping[str, Tensor]) -> None:
        """Set key, weight or bias, whatever is given, to these values."""
        with torch.no_grad():
            for part, values in parts.items():
                getattr(self, part).copy_(values)

    def forward(self, x: Tensor) -> Tensor:
        opened: Tensor = self.act(self.weight @ self.key + self.bias + self.shift)
        gamma, beta = opened.reshape(2, -1, *[1] * (x.dim() - 2))
        out: Tensor = gamma * self.norm(x) + beta
        return out


_CLOSED = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)  # they read inner weights


def draw_locks(seeds: Sequence[int], lock: LockedNorm, init: str) -> dict[str, Tensor]:
    """A key U(0, 1) and a lock for each seed: part -> (T, ...), as `lock` has them.

    "default" draws the lock as PyTorch does a dense layer, U(-1/sqrt(K), 1/sqrt(K)); "uniform" is U(-0.5, 0.5).
    """
    reach = 0.5 if init == "uniform" else lock.key.numel() ** -0.5
    drawn = {part: uniform(seeds, f"key-lock/{part}", getattr(lock, part).shape) for part in PARTS}
    return {part: (t if part == "key" else reach * (2 * t - 1)).to(lock.key) for part, t in drawn.items()}


def locks_in(model: nn.Module) -> dict[str, LockedNorm]:
    return {name: module for name, module in model.named_modules() if isinstance(module, LockedNorm)}


def place_for_norm(model: nn.Module, layer: str) -> str:
    """The layer that is locked: the named one, or the first; see `FIRST`."""
    kinds = ((_BatchNorm, nn.GroupNorm), nn.Conv2d, nn.Linear)
    known = [name for kind in kinds for name, module in model.named_modules() if isinstance(module, kind)]
    closed = [f"{name}." for name, module in model.named_modules() if isinstance(module, _CLOSED)]
    known = [name for name in known if not name.startswith(tuple(closed))]
    if not known:
        raise NotApplicable("a lock needs a BatchNorm, GroupNorm, Conv2d or Linear layer, and there is none")
    if layer not in (FIRST, *known):
        raise unknown_name("layer", layer, [FIRST, *known])
    return known[0] if layer == FIRST else layer


def with_norm(model: nn.Module, layer: str, length: int = 0, act: str = "identity") -> nn.Module:
    """A copy of `model` with a lock in place of the normalisation `layer`, or behind `layer` with a fresh BatchNorm.

    Without a key (`length` 0) the normalisation is a plain BatchNorm that learns its own scale and shift.
    """
    model = copy.deepcopy(model)
    name = place_for_norm(model, layer)
    old = model.get_submodule(name)
    if isinstance(old, (nn.Conv2d, nn.Linear)):
        dense = isinstance(old, nn.Linear)
        channels = old.out_features if isinstance(old, nn.Linear) else old.out_channels
        norm = (nn.BatchNorm1d if dense else nn.BatchNorm2d)(channels, affine=not length).to(old.weight)
        behind = LockedNorm(norm, channels, length, act).to(old.weight) if length else norm
        new: nn.Module = nn.Sequential(OrderedDict([("layer", old), ("lock" if length else "norm", behind)]))
    elif not length:
        return model
    else:  # the same normalisation, running statistics included, that no longer learns a scale and a shift
        assert isinstance(old, (_BatchNorm, nn.GroupNorm))
        channels = old.num_features if isinstance(old, _BatchNorm) else old.num_channels
        like = next((t for t in (*old.parameters(), *old.buffers()) if t.is_floating_point()), torch.zeros(()))
        old.affine = False
        old.register_parameter("weight", None)
        old.register_parameter("bias", None)
        new = LockedNorm(old, channels, length, act).to(like)
    new.train(old.training)
    if not name:  # the model is nothing but this layer
        return new
    model.set_submodule(name, new)
    return model


class SeveralRounds(nn.Module):
    """(N, ...) -> (N, C + 1) outputs. Their plain cross-entropy is the sum over rounds of the cross-entropies.

    The outputs are the sums over rounds of the log-probabilities of each class, and one more for the rest to a total
    probability of one: with it the softmax changes nothing. Locks are shared, everything else is each round's.
    """

    def __init__(self, model: nn.Module, rounds: int, drift: float, seed: int = 0) -> None:
        super().__init__()
        self.rounds = nn.ModuleList([model])
        for number in range(1, rounds):
            later = _moved(copy.deepcopy(model), drift, f"drift/{number}", seed)
            for name, lock in locks_in(model).items():
                later.set_submodule(name, _TheSame(lock))
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
    """The layer of an earlier round. In a tuple, so that it is listed only once, in its own round."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = (layer,)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer[0](x)
        return out


def _moved(model: nn.Module, drift: float, role: str, seed: int) -> nn.Module:
    """Every weight moved at random, by `drift` of the root mean square of its tensor: in place of others' training."""
    random = generator(seed, role)
    with torch.no_grad():
        for weight in model.parameters():
            step = torch.randn(weight.shape, generator=random).to(weight)
            weight.add_(drift * weight.square().mean().sqrt() * step)
    return model
