"""Mixing of clients' updates before fellow clients see them (the fusion of FedBoosting)."""

from leakgauge.defenses.mixing.defense import Mixing

__all__ = ["Mixing"]
