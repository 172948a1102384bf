"""FedAvg: the mean of the clients' updates, equal or by their samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from leakgauge.federation.aggregators.aggregator import Aggregator
from leakgauge.settings import setting


@dataclass(frozen=True)
class FedAvg(Aggregator):
    """McMahan et al. 2017.

    Example: `leakgauge train --aggregator fedavg --federation weighting=samples`
    """

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "the mean of the clients' updates, equal or by their samples"
    paper: ClassVar[str] = "McMahan et al. 2017"

    validation: float = setting(
        0.0,
        "share of a client's samples it does not train on, as fedboosting keeps back: for a fair comparison",
        low=0,
        high=0.5,
    )
