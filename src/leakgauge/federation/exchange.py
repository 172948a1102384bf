"""How a round's updates reach the others: in the clear, or encrypted so that the server adds what it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leakgauge.defenses.mixing import along_clients
from leakgauge.federation.encryption.scheme import Keys, Values, whole_weights
from leakgauge.types import SharedUpdate


@dataclass(frozen=True)
class PlainExchange:
    """The server sees every update."""

    updates: SharedUpdate  # (T, ...)
    mean_of: Callable[[SharedUpdate], SharedUpdate]  # what the server does with equal clients: (T, ...) -> (1, ...)
    mean_of_weighted: Callable[[SharedUpdate, Tensor], SharedUpdate] | None = None  # the same if it needs the weights

    def mixtures(self, weights: Tensor | None) -> SharedUpdate:
        """What clients try: one model per client, by the rows of `weights`; without any the updates as they are."""
        return self.updates if weights is None else along_clients(self.updates, weights[None])

    def mean(self, weights: Tensor) -> SharedUpdate:
        """Scaled so that a plain mean over clients becomes a weighted one."""
        factor = weights * len(weights)
        if torch.allclose(factor, torch.ones_like(factor), rtol=0, atol=1e-12):
            return self.mean_of(self.updates)  # equal weights: nothing is copied

        def scaled(tensor: Tensor) -> Tensor:
            return tensor * factor.to(tensor).view(-1, *[1] * (tensor.dim() - 1))

        buffers = {**self.updates.buffers} | {n: scaled(b) for n, b in _fractions(self.updates).items()}
        rows = replace(self.updates.map(lambda _, t: scaled(t)), buffers=buffers)
        return self.mean_of(rows) if self.mean_of_weighted is None else self.mean_of_weighted(rows, weights)


class EncryptedExchange:
    """Clients encrypt, the server adds and sends the sum back, clients open it. Every number that is not a counter.

    All clients open the same messages, so each is opened once here.
    """

    def __init__(self, updates: SharedUpdate, keys: Keys, pieces: int, clients: Sequence[int], number: int) -> None:
        self.updates, self.keys, self.pieces = updates, keys, pieces
        self.server = keys.adder()
        about = f"round {number}"
        self.sent = [keys.seal(row, c, about) for row, c in zip(flattened(updates), clients, strict=True)]

    def mixtures(self, weights: Tensor | None) -> SharedUpdate:
        """The same from encrypted messages: the server adds, and the client that tries a mixture opens it."""
        rows = [self.keys.open(one) for one in self.sent] if weights is None else map(self._opened, weights)
        return unflattened(np.stack([*rows]), self.updates)

    def mean(self, weights: Tensor) -> SharedUpdate:
        return unflattened(self._opened(weights)[None], self.updates)

    def _opened(self, shares: Tensor) -> Values:
        whole = whole_weights(shares.tolist(), self.pieces)
        return self.keys.open(self.server.weighted_sum(self.sent, whole))


def flattened(updates: SharedUpdate) -> Values:
    """(T, P): parameters, then buffers that hold fractions. Counters of batches stay behind: they say nothing."""
    parts = [t.detach().flatten(1).double().cpu() for t in (*updates.tensors.values(), *_fractions(updates).values())]
    flat: Values = torch.cat(parts, 1).numpy()
    return flat


def unflattened(rows: Values, like: SharedUpdate) -> SharedUpdate:
    """(R, P) -> an update of R rows with the shapes of `like`; its counters are averaged in the clear."""
    flat, fractions = torch.from_numpy(rows), _fractions(like)
    sizes = [tensor[0].numel() for tensor in (*like.tensors.values(), *fractions.values())]
    parts = iter(torch.split(flat, sizes, 1))

    def shaped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {n: next(parts).reshape(len(flat), *t.shape[1:]).to(t) for n, t in tensors.items()}

    tensors, buffers = shaped(like.tensors), shaped(fractions)
    for name, counter in like.buffers.items():
        if name not in buffers:
            mean = counter.double().mean(0, keepdim=True).to(counter.dtype)
            buffers[name] = mean.expand(len(flat), *counter.shape[1:])
    return replace(like, tensors=tensors, buffers=buffers)


def _fractions(updates: SharedUpdate) -> dict[str, Tensor]:
    return {n: b for n, b in updates.buffers.items() if b.is_floating_point()}
