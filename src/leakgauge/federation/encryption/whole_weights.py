"""Whole weights that add up exactly: what a server multiplies ciphertexts by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leakgauge.errors import BadInput


def whole_weights(shares: Sequence[float], pieces: int) -> list[int]:
    """Non-negative shares -> whole numbers with the sum `pieces`, each less than one away from its share of them.

    Rounding each by itself need not add up: three equal clients and 100 pieces make 99, and the step shrinks by 1 %.
    What is missing goes to the largest remainders, ties to the first.
    """
    share = np.asarray(shares, dtype=np.float64)
    if share.ndim != 1 or not len(share) or not np.isfinite(share).all() or (share < 0).any() or share.sum() <= 0:
        raise BadInput(
            "aggregation weights",
            allowed="non-negative numbers, not all zero",
            got=list(shares),
            do="give one per client",
        )
    exact = share / share.sum() * pieces
    whole = np.floor(exact).astype(np.int64)
    missing = pieces - int(whole.sum())
    order = np.argsort(-(exact - whole), kind="stable")
    whole[order[:missing]] += 1
    return [int(w) for w in whole]
