"""Figure 4.2, the two-Gaussians toy, as a table: every aggregator on every case, over many seeds."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from leakgauge.audit import Watch
from leakgauge.recipes._measurement import Figures, Measurement
from leakgauge.recipes._recipe import Cell, Study, Table
from leakgauge.two_gaussians.cases import CASES
from leakgauge.two_gaussians.comparing import one_run

FEDAVG = "fedavg:validation=0.1"
AGGREGATORS = (
    FEDAVG,
    "fedboosting",
    "fedboosting:over=median",
    "fedboosting:form=softmax,metric=accuracy",
    "fedadam:lr=0.1,validation=0.1",
)
_SEEDS = 20
_trained_once = functools.cache(one_run)  # FedAvg stands beside all the others


@dataclass(frozen=True, kw_only=True)
class ToyFederations(Measurement):
    """Federations of one case at so many seeds in a row, each beside FedAvg with the same start and samples."""

    unit: ClassVar[str] = "federations"

    case: str
    aggregator: str
    federations: int = _SEEDS
    rounds: int = 10
    samples: int = 500

    @property
    def size(self) -> int:
        return self.federations

    def resized(self, size: int) -> Self:
        return dataclasses.replace(self, federations=size)

    @property
    def title(self) -> str:
        return f"two Gaussians, {self.case}: {self.size} federations with {self.aggregator}, seed {self.seed}"

    @property
    def setting(self) -> str:
        return f"{self.rounds} rounds, {len(CASES[self.case].clients)} clients with {self.samples} samples each"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:  # noqa: ARG002
        """On the CPU, whatever was asked for: the network has eight hidden units."""
        accuracy, gained, ratio = [], [], []
        for number in range(self.federations):
            watch(0, 1, "", number / self.federations)
            own, usual = (
                _trained_once(self.case, spec, self.seed + number, self.rounds, self.samples)
                for spec in (self.aggregator, FEDAVG)
            )
            accuracy.append(own.accuracy)
            gained.append(own.accuracy - usual.accuracy)
            ratio.append(own.ratio)
        return {"accuracy": tuple(accuracy), "accuracy_gained": tuple(gained), "weight_ratio": tuple(ratio)}


def _cell(case: str, aggregator: str) -> Cell:
    weighs = aggregator.startswith("fedboosting")
    asked = ["accuracy"]
    asked += ["accuracy_gained"] if aggregator != FEDAVG else []
    asked += ["weight_ratio"] if weighs else []
    return Cell(
        aggregator, case, Study(ToyFederations(case=case, aggregator=aggregator)), dict.fromkeys(asked),
        quick=2 if (case, aggregator) == ("flipped", "fedboosting") else 0,
    )  # fmt: skip


TABLE_TOY = Table(
    "4.2",
    "two Gaussians (the thesis has a picture, no numbers)",
    "Accuracy on samples of all clients that nobody trained on, with their right labels; what it is more than FedAvg's "
    "with the same start and samples; the first client's weight over a mean other one's, which where a client is "
    "poisoned is its weight over an honest one's. Means over 20 seeds.",
    "`alike` and `narrow` have two clients who see different parts of the square. `flipped`, `noise` and `liar` have "
    "ten clients of whom the first is poisoned. The thesis does not say where its Gaussians lie, so the cases are "
    "ours; how they were chosen stands in the documentation. The server's rate of `fedadam` is the best of four (0.03, "
    "0.1, 0.3 and 1) on two other seeds of `alike`; on `narrow` none of them reached FedAvg.",
    tuple(_cell(case, aggregator) for aggregator in AGGREGATORS for case in CASES),
)
