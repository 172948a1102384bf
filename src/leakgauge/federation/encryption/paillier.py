"""Paillier: sums of whole numbers under encryption, exact to the last digit.

Paillier, EUROCRYPT 1999, with g = 1 + n. Everyone who encrypts here holds the private key too, so the random n-th
residue is drawn modulo p^2 and q^2 and put together: faster than r^n mod n^2, with the same distribution.

Many numbers go into one plaintext, in fixed point and shifted to be non-negative. A slot has whole bytes for the
largest weighted sum: sum_i w_i u_i with 0 <= u_i <= 2 q and sum_i w_i <= pieces stays below 2^(8 width).

Check values survive adding (homomorphic message authentication, Agrawal and Boneh 2009). A client sends, beside its
numbers q, the value <r, q> + f(client, round) modulo a prime; r and f come from a secret that the server does not have.
The sum of check values with weights w must equal <r, sum> + sum_i w_i f(i, round), so a changed number, another weight,
a left-out client or a message of another round is found out, up to a chance of one in the prime.

Where we depart from FedBoosting (Ren et al. 2022): keys of 2048 bits and more (128 bits are factored in seconds), fixed
point with a stated bound, many values per ciphertext, weights that add up, check values.
"""

from __future__ import annotations

import hashlib
import hmac
import operator
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leakgauge.errors import BadInput, Untrusted
from leakgauge.federation.encryption.scheme import CHANGED, Adder, Encryption, Keys, Sealed, Values, package
from leakgauge.settings import setting

gmpy2 = partial(package, "gmpy2", "paillier")
SECURE_BITS = (2048, 3072)
Whole = NDArray[np.int64]
_LEAST_BITS = 128
_WORD = 8  # bytes of the machine's whole numbers, which the widest slot must fit
_EXPONENTS = (127, 107, 89, 61)  # 2^e - 1 is prime


@dataclass(frozen=True)
class Paillier(Encryption):
    """Paillier over GMP.

    Example: `leakgauge train --encryption paillier:bits=3072`
    """

    name: ClassVar[str] = "paillier"
    summary: ClassVar[str] = "exact sums of whole numbers, many to a ciphertext; 2048 or 3072 bits"
    paper: ClassVar[str] = "Paillier 1999; Ren et al. 2022, FedBoosting"

    bits: int = setting(2048, "length of the key: 2048 or 3072", low=_LEAST_BITS)
    fraction_bits: int = setting(24, "a value is sent as a multiple of 2^-fraction_bits", low=1, high=52)
    insecure_demo: bool = setting(False, "allow a key that can be broken, for tests and demonstrations only")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits not in SECURE_BITS and not self.insecure_demo:
            do = "choose one of these; other keys need insecure_demo=True and protect nothing"
            raise BadInput("paillier: bits", allowed="2048 or 3072", got=self.bits, do=do)
        if self.bits % 2:
            raise BadInput("paillier: bits", allowed="even", got=self.bits, do="add one")
        _ = self.packing  # refuses numbers that do not fit

    @property
    def packing(self) -> Packing:
        return Packing(self.largest, self.fraction_bits, self.pieces, self.bits - 1)

    def keys(self) -> PaillierKeys:
        gmpy2()
        p, q = _prime(self.bits // 2), _prime(self.bits // 2)
        while p == q:
            q = _prime(self.bits // 2)
        return PaillierKeys(self, p, q, secrets.token_bytes(32))

    def error_bound(self) -> float:
        return 0.5 * 2.0**-self.fraction_bits * (1 + 1e-6)  # half a step; the last digit of a double comes on top

    def ciphertexts(self, entries: int) -> int:
        return -(-entries // self.packing.slots) + 1  # one more for the check value

    def bytes_up(self, entries: int) -> int:
        return self.ciphertexts(entries) * (self.bits // 4)


class PaillierAdder(Adder):
    """Multiplies ciphertexts modulo n^2, which adds what is in them."""

    def __init__(self, n: Any, scheme: Paillier) -> None:
        self.n, self.square, self.size, self.pieces = n, n * n, scheme.bits // 4, scheme.pieces
        self.key = hashlib.sha256(f"paillier/{int(n):x}".encode()).hexdigest()

    def added(self, column: Sequence[bytes], weights: Sequence[int]) -> bytes:
        product = gmpy2().mpz(1)
        for part, weight in zip(column, weights, strict=True):
            product = product * gmpy2().powmod(self.number(part), weight, self.square) % self.square
        return self.sent(product)

    def number(self, part: bytes) -> Any:
        """A ciphertext that can be one of this key: between 0 and n^2, and without a factor in common with n."""
        value = gmpy2().mpz(int.from_bytes(part, "little"))
        if len(part) != self.size or not 0 < value < self.square or gmpy2().gcd(value, self.n) != 1:
            raise Untrusted("a ciphertext is none of this key; it was changed, or encrypted with another one")
        return value

    def sent(self, value: Any) -> bytes:
        return int(value).to_bytes(self.size, "little")


class PaillierKeys(Keys):
    """p and q, and the secret of the check values."""

    scheme: Paillier

    def __init__(self, scheme: Paillier, p: Any, q: Any, secret: bytes) -> None:
        self.scheme, self.p, self.q, self.n = scheme, p, q, p * q
        self.p_square, self.q_square, self.square = p * p, q * q, self.n * self.n
        self.p_inverse = gmpy2().invert(self.p_square, self.q_square)  # to put residues together
        self.p_inverse_small = gmpy2().invert(p, q)
        self.h_p = gmpy2().invert(_log(gmpy2().powmod(1 + self.n, p - 1, self.p_square), p), p)
        self.h_q = gmpy2().invert(_log(gmpy2().powmod(1 + self.n, q - 1, self.q_square), q), q)
        self.checks = CheckValues.within(secret, scheme.bits - 1 - scheme.pieces.bit_length())
        self.packing, self._adder = scheme.packing, self.adder()
        self.fingerprint = self._adder.key

    def adder(self) -> PaillierAdder:
        return PaillierAdder(self.n, self.scheme)

    def closed(self, values: Values, client: int, about: str) -> list[bytes]:
        fixed = self.packing.fixed(values)
        plain = [*self.packing.packed(fixed), self.checks.of(fixed, client, about)]
        return [self._adder.sent(self._encrypted(m)) for m in plain]

    def opened(self, message: Sealed) -> Values:
        *plain, check = [self._decrypted(self._adder.number(part)) for part in message.parts]
        summed = self.packing.unpacked(plain, message.entries, message.total)
        if not self.checks.agrees(check, summed, message.weights, message.about):
            raise Untrusted(CHANGED)
        return summed / (message.total * 2.0**self.packing.fraction_bits)

    def _encrypted(self, plain: int) -> Any:
        a = gmpy2().powmod(1 + secrets.randbelow(int(self.p) - 1), self.p, self.p_square)
        b = gmpy2().powmod(1 + secrets.randbelow(int(self.q) - 1), self.q, self.q_square)
        residue = a + self.p_square * ((b - a) * self.p_inverse % self.q_square)
        return (1 + plain * self.n) * residue % self.square

    def _decrypted(self, cipher: Any) -> int:
        m_p = _log(gmpy2().powmod(cipher, self.p - 1, self.p_square), self.p) * self.h_p % self.p
        m_q = _log(gmpy2().powmod(cipher, self.q - 1, self.q_square), self.q) * self.h_q % self.q
        return int(m_p + self.p * ((m_q - m_p) * self.p_inverse_small % self.q))


@dataclass(frozen=True)
class Packing:
    """How values become slots of a plaintext below 2^capacity."""

    largest: float  # absolute value
    fraction_bits: int  # a value is a multiple of 2^-fraction_bits
    pieces: int  # the largest sum of weights
    capacity: int  # bits of one plaintext

    def __post_init__(self) -> None:
        if 2 * self.most * self.pieces >= 2**63:
            what = "packing: largest x 2^fraction_bits x pieces"
            got = f"{self.largest:g} x 2^{self.fraction_bits} x {self.pieces}"
            raise BadInput(what, allowed="below 2^62", do="lower one of the three", got=got)
        if self.slots < 1:
            allowed = f"longer than {8 * self.width} bits, which one value needs"
            do = "use a longer key, or fewer fraction_bits or pieces"
            raise BadInput("packing: key", allowed=allowed, got=f"{self.capacity} bits", do=do)

    @property
    def most(self) -> int:
        """The largest value in fixed point."""
        return int(np.ceil(self.largest * 2.0**self.fraction_bits))

    @property
    def width(self) -> int:
        """Bytes of a slot."""
        return -(-(2 * self.most * self.pieces).bit_length() // 8)

    @property
    def slots(self) -> int:
        return self.capacity // (8 * self.width)

    def fixed(self, values: NDArray[np.float64]) -> Whole:
        """To the nearest multiple: half a step away at most."""
        return np.rint(values * 2.0**self.fraction_bits).astype(np.int64)

    def packed(self, fixed: Whole) -> Iterator[int]:
        """(P,) in fixed point -> plaintexts of `slots` each; the last may hold fewer."""
        raw = (fixed + self.most).astype("<u8").view(np.uint8).reshape(-1, _WORD)[:, : self.width].tobytes()
        size = self.slots * self.width
        for begin in range(0, len(raw), size):
            yield int.from_bytes(raw[begin : begin + size], "little")

    def unpacked(self, plaintexts: Sequence[int], entries: int, total: int) -> Whole:
        """Weighted sums in fixed point, (P,); `total` is the sum of the weights."""
        size = self.slots * self.width
        lengths = [min(size, entries * self.width - begin) for begin in range(0, entries * self.width, size)]
        try:
            raw = b"".join(int(m).to_bytes(n, "little") for m, n in zip(plaintexts, lengths, strict=True))
        except (OverflowError, ValueError):
            raise Untrusted("a decrypted sum does not fit its slots; a message was changed or made otherwise") from None
        padded = np.zeros((entries, _WORD), np.uint8)
        padded[:, : self.width] = np.frombuffer(raw, np.uint8).reshape(entries, self.width)
        return padded.view("<u8")[:, 0].astype(np.int64) - total * self.most


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
        halves, whole = np.frombuffer(drawn, "<u8").reshape(-1, 2), fixed.tolist()
        low, high = (sum(map(operator.mul, whole, half.tolist())) for half in halves.T)
        return int(low + (high << 64))

    def _mask(self, client: int, about: str) -> int:
        digest = hmac.digest(self.secret, f"{client}/{about}".encode(), "sha256")
        return int.from_bytes(digest, "little") % self.prime


def _log(value: Any, prime: Any) -> Any:
    return (value - 1) // prime


def _prime(bits: int) -> Any:
    """Random, with its two highest bits set: the product of two has exactly twice the bits."""
    while True:
        candidate = gmpy2().mpz(secrets.randbits(bits)) | (gmpy2().mpz(3) << (bits - 2)) | 1
        if gmpy2().is_prime(candidate, 40):
            return candidate
