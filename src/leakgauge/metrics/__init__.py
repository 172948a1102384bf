"""Scores: pure functions with their direction and range."""

from leakgauge.metrics._metric import Metric

__all__ = ["Metric"]
