"""Leakgauge measures what a federated-learning update gives away.

The public names below are loaded when first used, so that importing the package (or asking for its version) is quick.
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    del sys.path[0]  # `python -m leakgauge` would run what lies in the working folder in place of what is imported next

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("leakgauge")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"

_HOMES = {
    "Attack": "leakgauge.types",
    "AuditReport": "leakgauge.types",
    "Batch": "leakgauge.types",
    "Defense": "leakgauge.types",
    "Fact": "leakgauge.types",
    "Finding": "leakgauge.types",
    "LeakgaugeError": "leakgauge.errors",
    "Client": "leakgauge.types",
    "Observation": "leakgauge.types",
    "Reconstruction": "leakgauge.types",
    "Scenario": "leakgauge.types",
    "SharedUpdate": "leakgauge.types",
    "TamperingServer": "leakgauge.types",
    "ThreatModel": "leakgauge.types",
    "Training": "leakgauge.types",
    "audit_update": "leakgauge.audit.training_loop",
    "chain": "leakgauge.client.chain",
    "observe": "leakgauge.client.observe",
    "run_audit": "leakgauge.audit.run",
    "write_report": "leakgauge.report",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'leakgauge' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), "write" if name == "write_report" else name)
