"""From the samples of a measurement to one number with a range, as `statistics` does for victims.

A time has its median and quartiles, since round times are skewed and not samples of one distribution. A figure that
differs with the seed has its mean and Student's 95 % interval, from two seeds on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from scipy.stats import t as student

from leakgauge.lab.reproduce.recipe import Figures
from leakgauge.metrics.intervals import clopper_pearson
from leakgauge.types import Interval

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Figure:
    """`heading` for people; `form` prints a value."""

    heading: str
    form: str
    reduce: Callable[[Sequence[float]], Interval]


def compute_figure(name: str, figures: Figures) -> Interval:
    """Empty if the measurement has no such figure, such as epsilon of a defense without a promise."""
    sample = figures.get(name, ())
    return FIGURES[name].reduce(sample) if sample else Interval(None, None, None)


def mean(sample: Sequence[float]) -> Interval:
    values = np.asarray(sample, dtype=float)
    middle = float(values.mean())
    if len(values) < 2:
        return Interval(middle, None, None)
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)
    return Interval(middle, middle - half, middle + half)


def mean_of_fives(sample: Sequence[float]) -> Interval:
    """The mean of groups of five, such as five keys tried on one training: only the groups are independent."""
    return mean([float(np.mean(sample[start : start + 5])) for start in range(0, len(sample), 5)])


def quartiles(sample: Sequence[float]) -> Interval:
    low, middle, high = (float(v) for v in np.percentile(np.asarray(sample, dtype=float), [25, 50, 75]))
    return Interval(middle, low, high) if len(sample) > 1 else Interval(middle, None, None)


def same(sample: Sequence[float]) -> Interval:
    """A figure that is the same for all seeds."""
    return Interval(float(sample[0]), None, None)


def share(sample: Sequence[float]) -> Interval:
    """The share of ones among zeros and ones, such as words read or not, with the exact binomial interval."""
    right, count = round(sum(sample)), len(sample)
    return Interval(right / count, *clopper_pearson(right, count))


def pearson(sample: Sequence[float]) -> Interval:
    """The correlation of pairs, given as x, y, x, y, ...; Fisher's 95 % interval."""
    x, y = np.asarray(sample, dtype=float).reshape(-1, 2).T
    return _correlation(x, y, 1.0)


def spearman(sample: Sequence[float]) -> Interval:
    """The same for ranks; the interval is a little wider (Bonett and Wright 2000)."""
    x, y = np.asarray(sample, dtype=float).reshape(-1, 2).T
    x, y = rankdata(x), rankdata(y)
    return _correlation(x, y, 1 + float(np.corrcoef(x, y)[0, 1]) ** 2 / 2)


def _correlation(x: Floats, y: Floats, variance: float) -> Interval:
    if len(x) < 2 or not x.std() or not y.std():
        return Interval(None, None, None)
    found = float(np.clip(np.corrcoef(x, y)[0, 1], -1, 1))
    if len(x) < 4 or abs(found) == 1:
        return Interval(found, None, None)
    half = float(norm.ppf(0.975)) * (variance / (len(x) - 3)) ** 0.5
    return Interval(found, *(float(np.tanh(np.arctanh(found) + side)) for side in (-half, half)))


def total(sample: Sequence[float]) -> Interval:
    """A count over all seeds together."""
    return Interval(float(sum(sample)), None, None)


def by_chance(sample: Sequence[float]) -> Interval:
    """The median of many random repetitions, and the range of the middle 95 %."""
    low, middle, high = (float(v) for v in np.percentile(np.asarray(sample, dtype=float), [2.5, 50, 97.5]))
    return Interval(middle, low, high)


def deviation(sample: Sequence[float]) -> Interval:
    """The standard deviation of a sample."""
    return Interval(float(np.std(sample, ddof=1)) if len(sample) > 1 else None, None, None)


FIGURES = {
    "certified": Figure("certified", "{:.3f}", mean),
    "whole_batches": Figure("batches recovered whole", "{:.3f}", share),
    "certificates": Figure("certificates", "{:,.0f}", total),
    "not_private": Figure("of them no private sample", "{:,.0f}", total),
    "batch_seconds": Figure("median seconds per batch", "{:.2f}", quartiles),
    "batch_cpu_seconds": Figure("of one core's time, with the client's step", "{:.2f}", quartiles),
    "top_1": Figure("top-1", "{:.2f}", share),
    "top_3": Figure("top-3", "{:.2f}", share),
    "top_5": Figure("top-5", "{:.2f}", share),
    "image_mse": Figure("MSE of images", "{:.2e}", mean),
    "image_wd": Figure("Wasserstein distance of images", "{:.2e}", mean),
    "classifier_right": Figure("other pictures named", "{:.2f}", share),
    "words_rendered": Figure("held-out rendered words read", "{:.3f}", share),
    "words_iiit5k": Figure("IIIT5K words read", "{:.3f}", share),
    "words_iiit5k_in_proportion": Figure("IIIT5K in proportion", "{:.3f}", share),
    "words_svt": Figure("SVT", "{:.3f}", share),
    "words_scut": Figure("SCUT", "{:.3f}", share),
    "words_ic15": Figure("IC15", "{:.3f}", share),
    "first_weight": Figure("weight of the client `flat`", "{:.2f}", mean),
    "pearson": Figure("Pearson's correlation", "{:+.3f}", pearson),
    "spearman": Figure("Spearman's correlation", "{:+.3f}", spearman),
    "pearson_blind": Figure("Pearson's with noise in place of the recovered", "{:+.3f}", pearson),
    "privacy_score": Figure("S_pri, mean over policies", "{:.3f}", mean),
    "psnr_of_policies": Figure("PSNR, mean over policies, dB", "{:.2f}", mean),
    "psnr_blind": Figure("PSNR of noise, dB", "{:.2f}", mean),
    "recognised_blind": Figure("recognised in a guess", "{:.3f}", share),
    "ssim_blind": Figure("SSIM of a guess", "{:.3f}", mean),
    "mse_blind": Figure("MSE of a guess", "{:.2e}", mean),
    "accuracy": Figure("accuracy", "{:.3f}", mean),
    "accuracy_quarter": Figure("after a quarter of the rounds", "{:.3f}", mean),
    "accuracy_half": Figure("after half of them", "{:.3f}", mean),
    "accuracy_other_key": Figure("accuracy with a random key", "{:.3f}", mean),
    "accuracy_server": Figure("accuracy with a random key and a fresh lock", "{:.3f}", mean),
    "accuracy_first_lock": Figure("accuracy with a random key and the first lock", "{:.3f}", mean_of_fives),
    "accuracy_gap": Figure("lost with a random key and the first lock", "{:+.3f}", mean),
    "accuracy_client_0": Figure("client 0", "{:.3f}", mean),
    "accuracy_client_1": Figure("client 1", "{:.3f}", mean),
    "accuracy_client_2": Figure("client 2", "{:.3f}", mean),
    "lock_share": Figure("the lock's share of all parameters", "{:.5f}", same),
    "inferred_cosine": Figure("cosine of the unseen layers, inferred and true", "{:.3f}", mean),
    "inferred_error": Figure("relative error of the unseen layers", "{:.3f}", mean),
    "inferred_cosine_blind": Figure("cosine with noise for a picture and the label found", "{:.3f}", mean),
    "accuracy_lost": Figure("accuracy lost", "{:+.3f}", mean),
    "accuracy_gained": Figure("gained over FedAvg", "{:+.3f}", mean),
    "as_centralised": Figure("decided as by the centralised model", "{:.3f}", mean),
    "weight_ratio": Figure("the first client's weight over another's", "{:.2f}", mean),
    "round_ms": Figure("median round, ms", "{:.0f}", quartiles),
    "exchange_cpu_ms": Figure("exchange of one round, ms of CPU time", "{:,.0f}", quartiles),
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
    "best_claimed": Figure("operations", "{:.0f}", mean),
    "by_edges": Figure("Spearman's correlation of PSNR with edges", "{:+.3f}", spearman),
    "by_contrast": Figure("with contrast", "{:+.3f}", spearman),
    "by_edges_blind": Figure("of a grey guess's PSNR with edges", "{:+.3f}", spearman),
    "by_contrast_blind": Figure("of a grey guess's PSNR with contrast", "{:+.3f}", spearman),
    "between_classes": Figure("share of PSNR's variance between classes", "{:.3f}", mean),
    "between_classes_by_chance": Figure("share between classes dealt out at random", "{:.3f}", by_chance),
    "psnr_of_pictures": Figure("PSNR, dB", "{:.2f}", mean),
    "single_none": Figure("S_pri", "{:.3f}", mean),
    **{f"single_{number}": Figure("S_pri", "{:.3f}", mean) for number in range(50)},
    **{
        f"similar_{depth}_{mark}": Figure(heading, "{:.3f}", reduce)
        for mark in (0, 10, 25, 50, 100)
        for depth, heading, reduce in (
            ("whole", "cosine", mean),
            ("spread", "std over pictures", deviation),
            ("shallow", "shallow layers", mean),
            ("middle", "middle layers", mean),
            ("deep", "deep layers", mean),
        )
    },
    **{
        f"{what}_{mark}": Figure(heading, "{:.3f}", mean)
        for mark in (10, 25, 50, 75, 100)
        for what, heading in (("loss", "training loss"), ("test", "test accuracy"))
    },
}
