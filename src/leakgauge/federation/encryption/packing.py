"""Many small numbers in one large one: fixed point, shifted to be non-negative, a slot of whole bytes each.

A slot is wide enough for the weighted sum of the largest values, so slots never run into each other: sum_i w_i u_i with
0 <= u_i <= 2 q and sum_i w_i <= pieces stays below 2^(8 width).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leakgauge.errors import BadInput, Untrusted

Whole = NDArray[np.int64]
_WORD = 8  # bytes of the machine's whole numbers, which the widest slot must fit


@dataclass(frozen=True)
class Packing:
    """How values become slots of a plaintext below 2^capacity."""

    largest: float  # absolute value
    fraction_bits: int  # a value is a multiple of 2^-fraction_bits
    pieces: int  # the largest sum of weights
    capacity: int  # bits of one plaintext

    def __post_init__(self) -> None:
        if 2 * self.most * self.pieces >= 2**63:
            raise BadInput(
                "packing: largest x 2^fraction_bits x pieces",
                allowed="below 2^62",
                do="lower one of the three",
                got=f"{self.largest:g} x 2^{self.fraction_bits} x {self.pieces}",
            )
        if self.slots < 1:
            raise BadInput(
                "packing: key",
                allowed=f"longer than {8 * self.width} bits, which one value needs",
                got=f"{self.capacity} bits",
                do="use a longer key, or fewer fraction_bits or pieces",
            )

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

    def plaintexts(self, entries: int) -> int:
        return -(-entries // self.slots)

    def fixed(self, values: NDArray[np.float64]) -> Whole:
        """To the nearest multiple: half a step away at most."""
        return np.rint(values * 2.0**self.fraction_bits).astype(np.int64)

    def floating(self, summed: Whole, total: int) -> NDArray[np.float64]:
        """The mean behind a weighted sum in fixed point."""
        return summed / (total * 2.0**self.fraction_bits)

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
