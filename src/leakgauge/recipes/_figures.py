"""From the samples of a measurement to one number with a range, as `_statistics` does for victims.

A time has its median and quartiles, as round times are skewed and no sample of one distribution. Whatever is drawn
anew with each seed has its mean and Student's 95 % interval, from two seeds on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from leakgauge.recipes._measurement import Figures
from leakgauge.types import Interval


@dataclass(frozen=True)
class Figure:
    """`heading` for people; `form` prints a value."""

    heading: str
    form: str
    reduce: Callable[[Sequence[float]], Interval]


def compute_figure(name: str, figures: Figures) -> Interval:
    """Nothing where the measurement has no such figure, such as the epsilon of what promises nothing."""
    sample = figures.get(name, ())
    return FIGURES[name].reduce(sample) if sample else Interval(None, None, None)


def mean(sample: Sequence[float]) -> Interval:
    values = np.asarray(sample, dtype=float)
    middle = float(values.mean())
    if len(values) < 2:
        return Interval(middle, None, None)
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)
    return Interval(middle, middle - half, middle + half)


def quartiles(sample: Sequence[float]) -> Interval:
    low, middle, high = (float(v) for v in np.percentile(np.asarray(sample, dtype=float), [25, 50, 75]))
    return Interval(middle, low, high) if len(sample) > 1 else Interval(middle, None, None)


def same(sample: Sequence[float]) -> Interval:
    """What is computed and not drawn: equal for all seeds."""
    return Interval(float(sample[0]), None, None)


FIGURES = {
    "accuracy": Figure("accuracy", "{:.3f}", mean),
    "accuracy_other_key": Figure("accuracy with a random key", "{:.3f}", mean),
    "accuracy_server": Figure("accuracy with a random key and a fresh lock", "{:.3f}", mean),
    "accuracy_lost": Figure("accuracy lost", "{:+.3f}", mean),
    "round_ms": Figure("median round, ms", "{:.0f}", quartiles),
    "slower": Figure("round time, undefended = 1", "{:.3f}", quartiles),
    "bytes_up": Figure("bytes up", "{:,.0f}", same),
    "epsilon": Figure("epsilon", "{:.4f}", same),
    "error_before": Figure("relative error of the mean", "{:.3f}", mean),
    "error_after": Figure("after compensation", "{:.3f}", mean),
    "directions_kept": Figure("directions kept", "{:.1f}", mean),
    "risk_apart": Figure("largest change of a tensor's share of the risk", "{:.3f}", mean),
    "entries_moved": Figure("entries in another slice", "{:.3f}", mean),
    "share_least": Figure("entries that are noised, least", "{:.3f}", mean),
    "share_most": Figure("entries that are noised, most", "{:.3f}", mean),
}
