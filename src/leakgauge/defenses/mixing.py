"""Mixing (FedBoosting's fusion): clients try mixtures of each other's updates instead of the updates themselves.

Ren 2022, section 4.2.3 and Eq. 4.5: the model that is tried for client i moves by a share of its own update and by a
little of all others. The text has the server draw those shares in private, with the own one always the largest; the
released code uses 0.9 for everybody. Three ways, by name:

  random  the own share of each mixture is drawn between `share` and one, the rest goes to the others in equal parts;
  free    the own share likewise, the rest in parts that are drawn too (evenly over all ways to share it out);
  fixed   the own share is `share`, in every mixture and every round.

This protects clients from one another. In the paper the server sees ciphertexts; every client holds the key, tries all
mixtures of its round, and is the attacker here. `clients` of them train apart, with the other defenses of the chain
acting at each; the first is the victim, the last the attacker, and the others are no targets. It is not differential
privacy: its randomness is not calibrated and nothing is accounted for.

How to beat it: T mixtures are T equations. An attacker who knows the weights (`known=true`, and always with
`fusing=fixed`, where the protocol gives them) solves them. Otherwise it uses its own update g:

* Read off: where a ReLU is silent for all the others, an entry of every mixture is a_i g, with a_i the share of g in
  mixture i. The same quotient comes at many entries, and no other quotient is repeated: the most frequent one is a_i.
  With the rest in equal parts (Eq. 4.5) that gives all weights. Where the rest was shared out freely, mixtures without
  a_i g show the shares of the others in the same way, up to a scale that follows because rows add up to one.
* Bounded: where no quotient is repeated, as with sigmoids, g is still a known combination of the mixtures. With equal
  parts one number stays open for all weights together, bounded by own shares between the protocol's least and one. The
  middle is taken: a guess, usually nearer than the mixture itself. Free weights that could not be read off get it too.

An attacker who does not know the defense takes the victim's mixture for its update. Earlier rounds are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses._families import FitsRows
from leakgauge.engine.randomness import per_trial
from leakgauge.errors import BadInput
from leakgauge.matching.first_layer import FirstLayer
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Attack, Observation, SharedUpdate

FUSINGS = ("random", "free", "fixed")
_LEAST = 0.5  # a drawn own share is at least that, so that no other share of its mixture is larger
_SAME = 2e-6  # quotients of float32 numbers that differ by less are one
_WIDER = 100.0  # a repeated quotient does not gain much by looking in so much wider a window, a chance one does
_ENTRIES = 8  # that have to share a quotient
_VISIBLE = 0.1  # share of a mixture's entry that has to be left after the own part is taken off
_TINY = 1e-30
_LOOKED_AT = 2**18  # entries of an update: more show no more


@dataclass(frozen=True)
class Mixing(FitsRows):
    """Example: `--defense mixing:clients=4,known=true`"""

    name: ClassVar[str] = "mixing"
    summary: ClassVar[str] = "show other clients mixtures of updates; attacked by another client"
    paper: ClassVar[str] = "Ren et al. 2022, FedBoosting; Ren 2022, section 4.2.3"

    clients: int = setting(3, "clients of a round, the victim and the attacker among them", low=2)
    share: float = setting(
        0.5,
        "least share of a client's own update in its mixture; the paper's experiments have 0.9 for everybody",
        above=0,
        high=0.9999,
    )
    fusing: str = setting(
        "random",
        "whose shares: own ones drawn in private and the rest in equal parts (random), in drawn parts (free), or share "
        "for everybody as released (fixed)",
        choices=FUSINGS,
    )
    known: bool = setting(False, "the attacker knows the weights; with fixed ones it always does")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fusing("mixing: share", self.share, self.fusing)

    @property
    def fellows(self) -> int:
        return self.clients - 1

    def received(self, updates: SharedUpdate, seeds: Sequence[int], informed: bool) -> SharedUpdate:
        weights = per_trial(seeds, "fusing", lambda g: fusing_weights(self.clients, self.share, self.fusing, g))
        mixtures = along_clients(updates, weights)  # weights: (T, M, M)
        if not informed:
            return mixtures.take(range(0, mixtures.trials, self.clients))
        if not self._knows_weights:
            own, groups = self._rows(updates)[:, -1], self._rows(mixtures)
            weights = guessed_weights(groups, own, self.fusing, self.share)[0]
        return along_clients(mixtures, torch.linalg.inv(weights)[:, :1])

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """Where weights are guessed an update may come out with a wrong scale, so that is left open.

        With the right weights the attack stays as it is: what it sees is the update itself.
        """
        if self._knows_weights or not self.has_rule_for(type(attack)):
            return ()
        return ("",) if issubclass(attack.kind, FirstLayer) or "scaled" in getattr(attack, "distances", ()) else ()

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return problem.replace(distance="scaled") if "scaled" in problem.distances else problem

    @property
    def _knows_weights(self) -> bool:
        return self.known or self.fusing == "fixed"

    def _rows(self, updates: SharedUpdate) -> Tensor:
        """(T, M, P): all tensors of each client in a row."""
        flat = torch.cat([t.detach().flatten(1) for t in updates.tensors.values()], 1)
        return flat.view(-1, self.clients, flat.shape[1])


def check_fusing(owner: str, share: float, fusing: str) -> None:
    """Shares that are drawn must keep the own one the largest."""
    if fusing != "fixed" and share < _LEAST:
        allowed = f"at least {_LEAST:g} where shares are drawn, so that the own one is the largest"
        raise BadInput(owner, allowed=allowed, got=share, do="raise it, or set fusing=fixed")


def fusing_weights(clients: int, share: float, fusing: str, g: torch.Generator) -> Tensor:
    """(T, T) float64: row i says how much of each update is in mixture i; rows add up to one."""
    if clients == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    if fusing == "fixed":
        return evenly_spread(torch.full((clients,), float(share), dtype=torch.float64))
    own = share + (1 - share) * torch.rand(clients, generator=g, dtype=torch.float64)
    if fusing == "random":
        return evenly_spread(own)
    parts = -torch.rand(clients, clients, generator=g, dtype=torch.float64).clamp(min=1e-12).log()
    parts.fill_diagonal_(0)
    return torch.diag(own) + parts / parts.sum(1, keepdim=True) * (1 - own)[:, None]


def evenly_spread(own: Tensor) -> Tensor:
    """(..., T) own shares -> (..., T, T), the rest of each row in equal parts: the form of Eq. 4.5. T is 2 or more."""
    clients = own.shape[-1]
    rest = (1 - own) / (clients - 1)
    return torch.diag_embed(own - rest) + rest[..., None].expand(*own.shape, clients)


def along_clients(updates: SharedUpdate, weights: Tensor) -> SharedUpdate:
    """(G x T, ...) updates of G groups and their weights (G, R, T) -> (G x R, ...)."""
    groups, rows, clients = weights.shape

    def combined(tensor: Tensor) -> Tensor:
        grouped = tensor.reshape(groups, clients, *tensor.shape[1:])
        if not tensor.is_floating_point():
            return grouped[:, :rows].flatten(0, 1)
        out = torch.einsum("gij,gj...->gi...", weights.to(tensor.device), grouped.double())
        return out.flatten(0, 1).to(tensor.dtype)

    buffers = {name: combined(b) for name, b in updates.buffers.items()}
    return replace(updates.map(lambda _, t: combined(t)), buffers=buffers)


def guessed_weights(mixtures: Tensor, own: Tensor, fusing: str, least: float) -> tuple[Tensor, Tensor]:
    """(T, M, P) mixtures and (T, P) the update of the last client -> (T, M, M) weights, and (T,) whether read off.

    Float64. `least` is the least own share of the protocol, which everybody knows, as is `fusing`.
    """
    clients, entries = mixtures.shape[1:]
    apart = entries // _LOOKED_AT + 1
    mixtures, own = mixtures[..., ::apart].double(), own[..., ::apart].double()
    bounded = _bounded(mixtures, own, least)
    shares, read = _shares_of(mixtures, own, least)
    if fusing == "random" or clients == 2:
        own_of_each = torch.cat([1 - (clients - 1) * shares[:, :-1], shares[:, -1:]], 1)
        weights = evenly_spread(own_of_each)
    else:
        weights, found = _freely_shared(mixtures - shares[..., None] * own[:, None], mixtures, shares)
        read = read & found
    return torch.where(read[:, None, None], weights, bounded), read


def _shares_of(mixtures: Tensor, own: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """(T, M): how much of the last client is in each mixture, and (T,) whether that could be read off."""
    trials, clients, _ = mixtures.shape
    low, high = mixtures.new_zeros(clients), mixtures.new_full((clients,), 1 - least)
    low[-1], high[-1] = least, 1.0
    there = own[:, None] != 0
    quotients = mixtures / torch.where(there, own[:, None], 1.0)
    possible = there & (quotients > low[:, None]) & (quotients <= high[:, None] + _SAME)
    shares, read = _repeated(torch.where(possible, quotients, torch.inf).flatten(0, 1))
    shares = torch.where(read, shares, (low + high).repeat(trials) / 2)
    return shares.view(trials, clients), read.view(trials, clients).all(1)


def _repeated(quotients: Tensor) -> tuple[Tensor, Tensor]:
    """(R, K), infinite where there is none -> the value (R,) that most of them share, and whether enough do."""
    ordered = quotients.sort(1).values.contiguous()
    places = torch.arange(ordered.shape[1], device=ordered.device)

    def within(width: float) -> Tensor:
        """How many lie in a window of this width that begins at each."""
        ends = torch.searchsorted(ordered, (ordered + width * ordered.abs()).contiguous(), right=True)
        return torch.where(ordered.isfinite(), ends - places, 0)

    count, begin = within(_SAME).max(1)
    around = within(_SAME * _WIDER).gather(1, begin[:, None])[:, 0]
    value = ordered.gather(1, (begin + (count - 1).clamp(min=0) // 2)[:, None])[:, 0]
    return value, (count >= _ENTRIES) & (10 * count >= around)


def _freely_shared(rest: Tensor, mixtures: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """The weights behind `rest`, the mixtures without the last client's part; whether all could be read off."""
    trials, clients, _ = rest.shape
    columns, found = [], torch.ones(trials, dtype=torch.bool, device=rest.device)
    size = rest.abs()
    for j in range(clients - 1):  # few: the other clients of a round
        leads = (size[:, j] >= size.max(1).values) & (size[:, j] > _VISIBLE * mixtures[:, j].abs() + _TINY)
        quotients = rest / torch.where(leads, rest[:, j], 1.0)[:, None]
        possible = leads[:, None] & (quotients > 0) & (quotients <= 1)
        value, read = _repeated(torch.where(possible, quotients, torch.inf).flatten(0, 1))
        columns.append(torch.where(value.isfinite(), value, 0.0).view(trials, clients))
        found &= read.view(trials, clients).all(1)
    directions = torch.stack(columns, 2)  # (T, M, M - 1)
    scales = torch.linalg.pinv(directions) @ (1 - shares)[..., None]  # rows add up to one
    weights = torch.cat([directions * scales.transpose(1, 2), shares[..., None]], 2)
    return weights, found & (weights.diagonal(dim1=1, dim2=2) > 0).all(1)


def _bounded(mixtures: Tensor, own: Tensor, least: float) -> Tensor:
    """(T, M, M) weights of Eq. 4.5's form under which the mixtures hold `own`, in the middle of what they may be.

    With r_i the part of every other client in mixture i, own = sum_i c_i mixture_i leaves S = sum_i c_i r_i open:
    r_i = (1 + S / c_i) / M for the others, (1 - (1 - S) / c_M) / M for the last.
    """
    clients = mixtures.shape[1]
    across = mixtures.transpose(1, 2)
    c = (torch.linalg.pinv(mixtures @ across, hermitian=True) @ (mixtures @ own[..., None]))[..., 0]
    c = c / c.sum(1, keepdim=True).clamp(min=_TINY)
    others, last = c[:, :-1].clamp(max=-_TINY), c[:, -1].clamp(min=1)
    far = 1 - clients * (1 - least) / (clients - 1)
    high = torch.minimum((-others).amin(1), 1 - far * last)
    low = (-far * others).amax(1).clamp(min=0)
    s = ((low + torch.maximum(low, high)) / 2)[:, None]
    rest = torch.cat([(1 + s / others) / clients, (1 - (1 - s) / last[:, None]) / clients], 1)
    return evenly_spread((1 - (clients - 1) * rest).clamp(least, 1 - 1e-9))
