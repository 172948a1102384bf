"""CKKS: sums of real numbers under encryption, approximate and a hundred times as fast as Paillier.

Cheon et al., ASIACRYPT 2017, by TenSEAL over Microsoft SEAL, which refuses parameters below 128 bits of security. A sum
costs one level: each message is multiplied by its share of the weights.

Its answers carry noise that depends on the key. Who publishes opened sums gives a little of the key away with each (Li
and Micciancio 2021): they are for those who hold it. The check value is approximate too. It finds messages that do not
open as what they claim to be, not a small change of one number: one below about 0.006 (the tolerance times the root of
a ciphertext's slots) goes unseen.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from leakgauge.errors import BadInput, Untrusted
from leakgauge.federation.encryption.scheme import CHANGED, Adder, Encryption, Keys, Sealed, Values, package

tenseal = partial(package, "tenseal", "ckks")
_DEGREE = 8192
_MODULI = [60, 40, 60]  # bits; one multiplication, 160 of the 218 that 128-bit security allows at this degree
_SCALE = 2.0**40
_SLOTS = _DEGREE // 2
_HELD = _SLOTS - 1  # one slot of each ciphertext holds its check value
_TOLERANCE = 1e-4  # of a check value; the noise we see is a hundredth of that
_MASK = 64.0
_LARGEST = 2.0**13  # 2^19 is where the numbers of a ciphertext end; a check value may be 64 times as large


@dataclass(frozen=True)
class Ckks(Encryption):
    """CKKS by TenSEAL.

    Example: `leakgauge train --encryption ckks`
    """

    name: ClassVar[str] = "ckks"
    summary: ClassVar[str] = "approximate sums of real numbers, 4095 to a ciphertext; 128-bit security"
    paper: ClassVar[str] = "Cheon et al. 2017"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.largest > _LARGEST:
            raise BadInput("ckks: largest", allowed=f"at most {_LARGEST:g}", got=self.largest, do="lower it")

    def keys(self) -> CkksKeys:
        context = tenseal().context(tenseal().SCHEME_TYPE.CKKS, _DEGREE, coeff_mod_bit_sizes=_MODULI)
        context.global_scale = _SCALE
        return CkksKeys(self, context, secrets.token_bytes(32))

    def error_bound(self) -> float:
        """Not proven: ten times the largest error seen at values of 64."""
        return 2e-5

    def ciphertexts(self, entries: int) -> int:
        return -(-entries // _HELD)

    def bytes_up(self, entries: int) -> int:
        """As measured on one ciphertext; they differ by a few bytes."""
        return self.keys().seal(np.zeros(_HELD), 0, "size").bytes * self.ciphertexts(entries)


class CkksAdder(Adder):
    """Holds the public context."""

    def __init__(self, context: Any, key: str, pieces: int) -> None:
        self.context, self.key, self.pieces = context, key, pieces

    def added(self, column: Sequence[bytes], weights: Sequence[int]) -> bytes:
        try:
            terms = [read(self.context, part) * (w / sum(weights)) for part, w in zip(column, weights, strict=True)]
            return bytes(sum(terms[1:], terms[0]).serialize())
        except (RuntimeError, ValueError) as error:  # readable, but of another scale or size than its neighbours
            raise Untrusted(f"a ciphertext does not fit the others ({error}); it was changed on the way") from None


class CkksKeys(Keys):
    """The context with its secret key, and the secret of the check values."""

    def __init__(self, scheme: Ckks, context: Any, secret: bytes) -> None:
        self.scheme, self.context, self.secret = scheme, context, secret
        self.public = context.serialize(save_secret_key=False)
        self.fingerprint = hashlib.sha256(b"ckks/" + self.public).hexdigest()

    @cached_property
    def _along(self) -> Values:
        """r, (4095,): of length one in the mean."""
        seed = int.from_bytes(hashlib.sha256(b"r" + self.secret).digest(), "little")
        drawn: Values = np.random.Generator(np.random.PCG64(seed)).standard_normal(_HELD) / _HELD**0.5
        return drawn

    def adder(self) -> CkksAdder:
        return CkksAdder(tenseal().context_from(self.public), self.fingerprint, self.scheme.pieces)

    def closed(self, values: Values, client: int, about: str) -> list[bytes]:
        parts = []
        for place, begin in enumerate(range(0, len(values), _HELD)):
            held = np.zeros(_HELD)
            held[: len(values) - begin] = values[begin : begin + _HELD]
            check = float(held @ self._along) + self._mask(client, about, place)
            parts.append(tenseal().ckks_vector(self.context, np.append(held, check).tolist()).serialize())
        return parts

    def opened(self, message: Sealed) -> Values:
        found = [np.zeros(0)]
        for place, part in enumerate(message.parts):
            try:
                slots = np.asarray(read(self.context, part).decrypt(), dtype=np.float64)
            except (RuntimeError, ValueError) as error:
                raise Untrusted(f"a ciphertext cannot be opened ({error}); it was changed on the way") from None
            masks = sum(w / message.total * self._mask(client, message.about, place) for client, w in message.weights)
            sound = slots.shape == (_SLOTS,) and bool(np.isfinite(slots).all())
            if not sound or abs(slots[-1] - float(slots[:-1] @ self._along) - masks) > _TOLERANCE:
                raise Untrusted(CHANGED)
            found.append(slots[:-1])
        return np.concatenate(found)[: message.entries]

    def _mask(self, client: int, about: str, place: int) -> float:
        digest = hmac.digest(self.secret, f"{client}/{about}/{place}".encode(), "sha256")
        return _MASK * (2 * int.from_bytes(digest[:8], "little") / 2**64 - 1)


def read(context: Any, part: bytes) -> Any:
    """A ciphertext that can be one of this context."""
    try:
        return tenseal().ckks_vector_from(context, part)
    except (RuntimeError, ValueError):
        raise Untrusted("a ciphertext cannot be read; it was changed, or encrypted with other parameters") from None
