"""Paillier: sums of whole numbers under encryption, exact to the last digit.

Paillier, EUROCRYPT 1999, with g = 1 + n. Everyone who encrypts here holds the private key too, so the random n-th
residue is drawn modulo p^2 and q^2 and put together: faster than r^n mod n^2, with the same distribution.

Where we depart from FedBoosting (Ren et al. 2022): keys of 2048 bits and more (128 bits are factored in seconds), fixed
point with a stated bound, many values per ciphertext, weights that add up, check values.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from leakgauge.errors import BadInput, MissingExtra, Untrusted
from leakgauge.federation.encryption._scheme import Adder, Encryption, Keys, Sealed, Values
from leakgauge.federation.encryption.check_values import CheckValues
from leakgauge.federation.encryption.packing import Packing
from leakgauge.settings import setting

SECURE_BITS = (2048, 3072)
_LEAST_BITS = 128


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
            raise BadInput(
                "paillier: bits",
                allowed="2048 or 3072",
                got=self.bits,
                do="choose one of these; other keys need insecure_demo=True and protect nothing",
            )
        if self.bits % 2:
            raise BadInput("paillier: bits", allowed="even", got=self.bits, do="add one")
        _ = self.packing

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

    def bytes_up(self, entries: int) -> int:
        return (self.packing.plaintexts(entries) + 1) * (self.bits // 4)  # one more for the check value


class PaillierAdder(Adder):
    """Multiplies ciphertexts modulo n^2, which adds what is in them."""

    def __init__(self, n: Any, bits: int, pieces: int) -> None:
        self.n, self.square, self.size, self.pieces = n, n * n, bits // 4, pieces
        self.key = fingerprint(n)

    def _added(self, used: Sequence[tuple[Sealed, int]]) -> tuple[bytes, ...]:
        return tuple(self._product(column, [w for _, w in used]) for column in self._columns([m for m, _ in used]))

    def _columns(self, messages: Sequence[Sealed]) -> Iterator[tuple[bytes, ...]]:
        if len({len(m.parts) for m in messages}) != 1:
            raise Untrusted("messages have different numbers of ciphertexts; ask for them again")
        return zip(*(m.parts for m in messages), strict=True)

    def _product(self, column: Sequence[bytes], weights: Sequence[int]) -> bytes:
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

    def __init__(self, scheme: Paillier, p: Any, q: Any, secret: bytes) -> None:
        self.scheme, self.p, self.q, self.n = scheme, p, q, p * q
        self.p_square, self.q_square, self.square = p * p, q * q, self.n * self.n
        self.p_inverse = gmpy2().invert(self.p_square, self.q_square)  # to put residues together
        self.p_inverse_small = gmpy2().invert(p, q)
        self.h_p = gmpy2().invert(_log(gmpy2().powmod(1 + self.n, p - 1, self.p_square), p), p)
        self.h_q = gmpy2().invert(_log(gmpy2().powmod(1 + self.n, q - 1, self.q_square), q), q)
        self.checks = CheckValues.within(secret, scheme.bits - 1 - scheme.pieces.bit_length())
        self.fingerprint = fingerprint(self.n)
        self._adder = PaillierAdder(self.n, scheme.bits, scheme.pieces)

    def adder(self) -> PaillierAdder:
        return PaillierAdder(self.n, self.scheme.bits, self.scheme.pieces)

    def seal(self, values: Values, client: int, about: str) -> Sealed:
        fixed = self.scheme.packing.fixed(self.scheme._checked(values))
        plain = [*self.scheme.packing.packed(fixed), self.checks.of(fixed, client, about)]
        parts = tuple(self._adder.sent(self._encrypted(m)) for m in plain)
        return Sealed(self.fingerprint, about, ((client, 1),), len(fixed), parts)

    def open(self, message: Sealed) -> Values:
        self._check(message)
        packing = self.scheme.packing
        if len(message.parts) != packing.plaintexts(message.entries) + 1 or not 0 < message.total <= self.scheme.pieces:
            raise Untrusted("a message has a wrong number of ciphertexts or more weight than it may; ask for it again")
        *plain, check = [self._decrypted(self._adder.number(part)) for part in message.parts]
        summed = packing.unpacked(plain, message.entries, message.total)
        if not self.checks.agrees(check, summed, message.weights, message.about):
            raise Untrusted("the check value does not fit: a message, a weight or the round was changed on the way")
        return packing.floating(summed, message.total)

    def _encrypted(self, plain: int) -> Any:
        a = gmpy2().powmod(1 + secrets.randbelow(int(self.p) - 1), self.p, self.p_square)
        b = gmpy2().powmod(1 + secrets.randbelow(int(self.q) - 1), self.q, self.q_square)
        residue = a + self.p_square * ((b - a) * self.p_inverse % self.q_square)
        return (1 + plain * self.n) * residue % self.square

    def _decrypted(self, cipher: Any) -> int:
        m_p = _log(gmpy2().powmod(cipher, self.p - 1, self.p_square), self.p) * self.h_p % self.p
        m_q = _log(gmpy2().powmod(cipher, self.q - 1, self.q_square), self.q) * self.h_q % self.q
        return int(m_p + self.p * ((m_q - m_p) * self.p_inverse_small % self.q))


def gmpy2() -> Any:
    """The package, or one line that says how to get it."""
    try:
        import gmpy2 as found
    except ImportError:
        raise MissingExtra("paillier needs the package gmpy2; run: pip install 'leakgauge[encryption]'") from None
    return found


def fingerprint(n: Any) -> str:
    return hashlib.sha256(f"paillier/{int(n):x}".encode()).hexdigest()


def _log(value: Any, prime: Any) -> Any:
    return (value - 1) // prime


def _prime(bits: int) -> Any:
    """Random, with its two highest bits set: the product of two has exactly twice the bits."""
    while True:
        candidate = gmpy2().mpz(secrets.randbits(bits)) | (gmpy2().mpz(3) << (bits - 2)) | 1
        if gmpy2().is_prime(candidate, 40):
            return candidate
