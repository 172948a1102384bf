"""Secure aggregation: the server sees the sum of several clients' updates."""

from leakgauge.defenses.secure_aggregation.defense import SecureAggregation

__all__ = ["SecureAggregation"]
