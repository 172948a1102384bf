"""How numbers are written for people: one place, so that page and text agree to the digit."""

from __future__ import annotations

import math
import re

from leakgauge.types import Interval, Rate

NOTHING = "–"
_DIGITS = {"psnr": "{:.1f}", "ssim": "{:.3f}", "ssim_uniform7": "{:.3f}", "mse": "{:.2e}"}
_NAMES = {
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "ssim_uniform7": "SSIM, 7 × 7 window",
    "mse": "MSE",
    "cells": "Values right",
    "lpips": "LPIPS",
    "psnr_aligned": "aligned PSNR, dB",
    "ssim_aligned": "aligned SSIM",
    "asr_content": "Solved (ASR_c)",
    "asr_label": "All labels right (ASR_l)",
}


def number(metric: str, value: float | None) -> str:
    """`metric` is a score's name, with or without its reduction: psnr, ssim_mean_per_image."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if "accuracy" in metric or metric.startswith("asr_") or base(metric) == "cells":
        return percent(value)
    return _DIGITS.get(base(metric), "{:.3g}").format(value).replace("-", "−")


def percent(share: float) -> str:
    """Never rounds a few to none, nor almost all to all."""
    if 0 < share < 0.0005 or 0.9995 <= share < 1:
        return "<0.1 %" if share < 0.5 else ">99.9 %"
    return f"{f'{100 * share:.1f}'.removesuffix('.0')} %"


def duration(seconds: float) -> str:
    """Never rounds a short time to none."""
    if 0 < seconds < 0.001:
        return "<0.001 s"
    if 0 < seconds < 0.95:
        return f"{seconds:.2g} s"
    return f"{seconds:.1f} s" if 0 < seconds < 99.95 else f"{seconds:,.0f} s"


def milliseconds(time: Interval) -> str:
    """ "17 ms [13, 25]"."""
    middle, low, high = (f"{1000 * (seconds or 0):.0f}" for seconds in (time.value, time.low, time.high))
    return f"{middle} ms [{low}, {high}]"


def counted(noun: str, value: float | None) -> str:
    """ "1 step", "4,400 steps"; nothing where it was not counted."""
    return "" if value is None else f"{value:,.0f} {noun}{'' if value == 1 else 's'}"


def bounds(metric: str, interval: Interval) -> str:
    """The interval in brackets, or nothing where it could not be computed."""
    if interval.low is None or interval.high is None:
        return ""
    low, high = number(metric, interval.low), number(metric, interval.high)
    return f"[{low.removesuffix(' %')}, {high}]"


def rate_bounds(rate: Rate) -> str:
    return f"[{percent(rate.low).removesuffix(' %')}, {percent(rate.high)}]"


def base(metric: str) -> str:
    """ssim_mean_per_image -> ssim."""
    return re.split(r"_(?:mean|median|best|min|max|std|share)_", metric, maxsplit=1)[0]


def heading(metric: str) -> tuple[str, str]:
    """What is measured, and how many became one: ("SSIM", "mean per image")."""
    name = base(metric)
    reduction = metric[len(name) :].strip("_").replace("_", " ")
    return _NAMES.get(name, name.replace("_", " ").capitalize()), reduction
