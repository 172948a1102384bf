"""What a fellow client makes of mixtures whose weights it was not told: the zeros of gradients give them away.

The fellow client has all M mixtures of a round, as everyone who tries them does, and its own update g.

Read off: where a ReLU is silent for all the others, an entry of every mixture is a_i g, with a_i the share of g in
mixture i: the same quotient at many entries, which nothing else repeats. So the quotient that most entries have in
common is a_i. With the rest of a mixture in equal parts (Eq. 4.5) that is all there is to know. Where it was shared out
freely, what is left after a_i g is taken off shows the shares of the others in the same way, and rows that add up to
one say how large they are.

Bounded: where no quotient is repeated, as with sigmoids, g is still a known combination of the mixtures. With equal
parts that leaves a single number open for all weights together, and own shares between the least of the protocol and
one bound it. The middle is taken; it is a guess, as a rule nearer than the mixture itself. The same guess serves where
freely shared weights could not be read off.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.defenses.mixing.weights import evenly_spread

_SAME = 2e-6  # quotients of float32 numbers that differ by less are one
_WIDER = 100.0  # a repeated quotient does not gain much by looking in so much wider a window, a chance one does
_ENTRIES = 8  # that have to share a quotient
_VISIBLE = 0.1  # share of a mixture's entry that has to be left after the own part is taken off
_TINY = 1e-30
_LOOKED_AT = 2**18  # entries of an update: more show no more


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
