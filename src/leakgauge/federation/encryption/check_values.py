"""Check values that survive adding: whoever holds the secret sees whether a sum is what it claims to be.

A client sends, beside its numbers q, the value <r, q> + f(client, round) modulo a prime; r and f come from a secret
that the server does not have. The sum of check values with weights w must then equal <r, sum> + sum_i w_i f(i, round),
so a changed number, another weight, a left-out client or a message of another round is found out, up to a chance of one
in the prime. Linear check values of this kind are known as homomorphic message authentication (Agrawal and
Boneh 2009).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

import numpy as np

from leakgauge.federation.encryption.packing import Whole

_EXPONENTS = (127, 107, 89, 61)  # 2^e - 1 is prime


@dataclass(frozen=True)
class CheckValues:
    secret: bytes
    prime: int

    @classmethod
    def within(cls, secret: bytes, bits: int) -> CheckValues:
        """With the largest prime of at most this many bits; the smallest if none fits."""
        exponent = next((e for e in _EXPONENTS if e <= bits), _EXPONENTS[-1])
        return cls(secret, 2**exponent - 1)

    def of(self, fixed: Whole, client: int, about: str) -> int:
        return (self._along(fixed) + self._mask(client, about)) % self.prime

    def agrees(self, check: int, summed: Whole, weights: tuple[tuple[int, int], ...], about: str) -> bool:
        """Is `check`, a weighted sum of check values, that of these summed numbers?"""
        masks = sum(weight * self._mask(client, about) for client, weight in weights)
        return check % self.prime == (self._along(summed) + masks) % self.prime

    def _along(self, fixed: Whole) -> int:
        """<r, q>, with r drawn out of the secret: 16 bytes per entry."""
        drawn = hashlib.shake_256(b"r" + self.secret).digest(16 * len(fixed))
        halves = np.frombuffer(drawn, "<u8").reshape(-1, 2)
        low, high = halves[:, 0].tolist(), halves[:, 1].tolist()
        whole: list[int] = fixed.tolist()
        lower: int = sum(q * a for q, a in zip(whole, low, strict=True))
        upper: int = sum(q * b for q, b in zip(whole, high, strict=True))
        return lower + (upper << 64)

    def _mask(self, client: int, about: str) -> int:
        digest = hmac.digest(self.secret, f"{client}/{about}".encode(), "sha256")
        return int.from_bytes(digest, "little") % self.prime
