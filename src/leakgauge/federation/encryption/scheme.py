"""What every scheme offers: keys for the clients, sums for the server, and a message that says what it belongs to.

All clients hold the same keys, as in FedBoosting; the server holds what adding needs and nothing that opens a message.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leakgauge.errors import BadInput, MissingExtra, Untrusted
from leakgauge.settings import Settings, setting

Values = NDArray[np.float64]
CHANGED = "the check value does not fit: a message, a weight or the round was changed on the way"


@dataclass(frozen=True)
class Sealed:
    """Ciphertexts of one vector, or of a weighted sum of several."""

    key: str  # fingerprint of the key that it was made with
    about: str  # what it is for, such as "round 3"; a message of another round does not open as one of this
    weights: tuple[tuple[int, int], ...]  # (client, whole weight) of each vector in it; one pair (c, 1) when fresh
    entries: int  # numbers in the vector
    parts: tuple[bytes, ...]

    @property
    def bytes(self) -> int:
        return sum(map(len, self.parts))

    @property
    def total(self) -> int:
        return sum(weight for _, weight in self.weights)


class Adder(ABC):
    """The server's side: it adds what it cannot read."""

    key: str
    pieces: int

    def weighted_sum(self, messages: Sequence[Sealed], weights: Sequence[int]) -> Sealed:
        """One message with sum_i w_i x_i, from fresh ones; the weights are whole and their sum fits the guard."""
        self._check(messages, weights)
        used = [(m, w) for m, w in zip(messages, weights, strict=True) if w]
        if len({len(m.parts) for m, _ in used}) != 1:
            raise Untrusted("messages have different numbers of ciphertexts; ask for them again")
        whole = [w for _, w in used]
        parts = tuple(self.added(column, whole) for column in zip(*(m.parts for m, _ in used), strict=True))
        pairs = tuple((m.weights[0][0], w) for m, w in used)
        return Sealed(self.key, messages[0].about, pairs, messages[0].entries, parts)

    @abstractmethod
    def added(self, column: Sequence[bytes], weights: Sequence[int]) -> bytes:
        """The weighted sum of one ciphertext of each message."""

    def _check(self, messages: Sequence[Sealed], weights: Sequence[int]) -> None:
        whole = len(messages) == len(weights) > 0 and all(isinstance(w, int) and w >= 0 for w in weights)
        if not whole or not 0 < sum(weights) <= self.pieces:
            raise BadInput(
                "encrypted sum: weights",
                allowed=f"one whole number per message, with a sum of 1 to {self.pieces} (more would overflow)",
                got=f"{len(weights)} for {len(messages)} messages with the sum {sum(weights)}",
                do="use whole_weights, or raise pieces",
            )
        for message in messages:
            if message.key != self.key:
                raise Untrusted("a message was encrypted with another key than the server adds under; ask for it again")
            if message.total != 1 or len(message.weights) != 1:
                raise Untrusted("a message is a sum already; add fresh messages of clients only")
            if (message.entries, message.about) != (messages[0].entries, messages[0].about):
                raise Untrusted("messages of different rounds or lengths cannot be added; ask for them again")
        if len({m.weights[0][0] for m in messages}) != len(messages):
            raise Untrusted("two messages come from the same client; add one of each")


class Keys(ABC):
    """A client's side: what closes and opens messages. Every client of a federation holds the same."""

    scheme: Encryption
    fingerprint: str

    def seal(self, values: Values, client: int, about: str) -> Sealed:
        """(P,) finite numbers within the range -> a fresh message of this client."""
        flat = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
        worst, largest = float(np.abs(flat).max(initial=0.0)), self.scheme.largest
        if not worst <= largest:  # also for nan
            allowed = f"between -{largest:g} and {largest:g} (the overflow guard)"
            what, do = f"{self.scheme.name}: value to encrypt", "raise largest, or clip the update"
            raise BadInput(what, got=f"{worst:g}", do=do, allowed=allowed)
        return Sealed(self.fingerprint, about, ((client, 1),), len(flat), tuple(self.closed(flat, client, about)))

    def open(self, message: Sealed) -> Values:
        """The weighted mean sum_i w_i x_i / sum_i w_i, (P,); raises `Untrusted` if anything was changed."""
        if message.key != self.fingerprint:
            raise Untrusted("this message belongs to another key; open it with the key that it was encrypted with")
        wanted = self.scheme.ciphertexts(message.entries)
        if len(message.parts) != wanted or not 0 < message.total <= self.scheme.pieces:
            raise Untrusted("a message has a wrong number of ciphertexts or more weight than it may; ask for it again")
        return self.opened(message)

    @abstractmethod
    def closed(self, values: Values, client: int, about: str) -> Sequence[bytes]:
        """The ciphertexts of checked values (P,)."""

    @abstractmethod
    def opened(self, message: Sealed) -> Values:
        """What a message of this key holds."""

    @abstractmethod
    def adder(self) -> Adder:
        """What the server gets."""


@dataclass(frozen=True)
class Encryption(Settings):
    """One scheme. Fields are its parameters; keys are made anew by `keys()` from the system's randomness."""

    paper: ClassVar[str]

    largest: float = setting(64.0, "largest absolute value that may be sent; a larger one is refused", above=0)
    pieces: int = setting(65536, "whole number that the clients' weights add up to", low=1)

    def keys(self) -> Keys:
        raise NotImplementedError  # abstract

    def error_bound(self) -> float:
        """How far an opened mean may be from the same mean in plain numbers, per entry."""
        raise NotImplementedError  # abstract

    def ciphertexts(self, entries: int) -> int:
        """How many stand for a vector of this length."""
        raise NotImplementedError  # abstract

    def bytes_up(self, entries: int) -> int:
        """What one client sends for a vector of this length."""
        raise NotImplementedError  # abstract

    def trust(self) -> tuple[str, ...]:
        """Who holds which key, and what breaks if they work together; one sentence each."""
        return (
            f"One client makes the {self.name} keys and gives them to all clients; the server holds only what it needs "
            "to add.",
            "The server sees ciphertexts and the clients' weights.",
            "Any client together with the server reads every client's update: all clients hold the same key.",
            "A check value exposes a changed message, sum or weight, and a message of another round, to those who hold "
            "the key; it does not say who changed it, and a client with the key can send whatever it likes.",
        )


def package(name: str, scheme: str) -> Any:
    """The package that a scheme stands on, or one line that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        how = "pip install 'leakgauge[encryption]'"
        raise MissingExtra(f"{scheme} needs the package {name}; run: {how}") from None


def whole_weights(shares: Sequence[float], pieces: int) -> list[int]:
    """Non-negative shares -> whole numbers with the sum `pieces`, each less than one away from its share of them.

    A server multiplies ciphertexts by them. Rounding each by itself need not add up: three equal clients and 100 pieces
    make 99, and the step shrinks by 1 %. What is missing goes to the largest remainders, ties to the first.
    """
    share = np.asarray(shares, dtype=np.float64)
    if share.ndim != 1 or not len(share) or not np.isfinite(share).all() or (share < 0).any() or share.sum() <= 0:
        allowed, do = "non-negative numbers, not all zero", "give one per client"
        raise BadInput("aggregation weights", allowed=allowed, got=list(shares), do=do)
    exact = share / share.sum() * pieces
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - whole), kind="stable")
    whole[order[: pieces - int(whole.sum())]] += 1
    return [int(w) for w in whole]
