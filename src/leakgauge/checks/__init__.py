"""The client's side: what can be seen in a received model before training on it.

`inspect_model` runs all checks, `scores` gives the numbers behind them. `@check` or `@caution` makes one.
"""

from leakgauge.checks.inspection import inspect_model, scores, tampered
from leakgauge.checks.suspicion import Suspicion
from leakgauge.checks.thresholds import Thresholds

__all__ = ["Suspicion", "Thresholds", "inspect_model", "scores", "tampered"]
