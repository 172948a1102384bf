"""Noise on some slices of an update, cut by their risk, and the server's compensation (Wang et al. 2022)."""

from leakgauge.defenses.sensitivity.defense import Sensitivity

__all__ = ["Sensitivity"]
