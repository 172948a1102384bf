"""PRECODE, and the noise of its bottleneck read off the update or searched for."""

from leakgauge.defenses.precode.defense import Precode

__all__ = ["Precode"]
