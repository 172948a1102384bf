"""Table columns into [0, 1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def min_max(values: NDArray[np.float64], public: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scale each column by the range of the public rows; what lies outside is clipped.

    The private rows take no part in the ranges, as they would not in a federation.
    """
    low, high = public.min(0), public.max(0)
    width = np.where(high > low, high - low, 1.0)
    scaled: NDArray[np.float32] = np.clip((values - low) / width, 0, 1).astype(np.float32)
    return scaled
