"""Transformation policies: up to three image operations in a row, found by automatic transformation search (ATS)."""

from leakgauge.defenses.ats.defense import ATS

__all__ = ["ATS"]
