"""What every scheme offers: keys for the clients, sums for the server, and a message that says what it belongs to.

All clients hold the same keys, as in FedBoosting; the server holds what adding needs and nothing that opens a message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from leakgauge.errors import BadInput, Untrusted
from leakgauge.settings import Settings, setting

Values = NDArray[np.float64]


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
        pairs = tuple((m.weights[0][0], w) for m, w in used)
        first = messages[0]
        return Sealed(self.key, first.about, pairs, first.entries, self._added(used))

    @abstractmethod
    def _added(self, used: Sequence[tuple[Sealed, int]]) -> tuple[bytes, ...]: ...

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
        clients = [m.weights[0][0] for m in messages]
        if len(set(clients)) != len(clients):
            raise Untrusted("two messages come from the same client; add one of each")


class Keys(ABC):
    """A client's side: what closes and opens messages. Every client of a federation holds the same."""

    fingerprint: str

    @abstractmethod
    def seal(self, values: Values, client: int, about: str) -> Sealed:
        """(P,) finite numbers within the range -> a fresh message of this client."""

    @abstractmethod
    def open(self, message: Sealed) -> Values:
        """The weighted mean sum_i w_i x_i / sum_i w_i, (P,); raises `Untrusted` if anything was changed."""

    @abstractmethod
    def adder(self) -> Adder:
        """What the server gets."""

    def _check(self, message: Sealed) -> None:
        if message.key != self.fingerprint:
            raise Untrusted("this message belongs to another key; open it with the key that it was encrypted with")


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

    def _checked(self, values: Values) -> Values:
        flat = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
        worst = float(np.abs(flat).max()) if flat.size else 0.0
        if not worst <= self.largest:  # also for nan
            raise BadInput(
                f"{self.name}: value to encrypt",
                got=f"{worst:g}",
                do="raise largest, or clip the update",
                allowed=f"between -{self.largest:g} and {self.largest:g} (the overflow guard)",
            )
        return flat
