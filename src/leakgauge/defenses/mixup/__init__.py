"""Mixup, and the samples behind its mixtures."""

from leakgauge.defenses.mixup.defense import Mixup

__all__ = ["Mixup"]
