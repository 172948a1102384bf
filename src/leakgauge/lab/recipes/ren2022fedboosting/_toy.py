"""Figure 4.2, the toy of two Gaussians, as a table: every aggregator on every case, over many seeds."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from leakgauge.audit.run import Watch
from leakgauge.federation.centralised import NAME as CENTRALISED
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Study, Table
from leakgauge.lab.two_gaussians.cases import CASES
from leakgauge.lab.two_gaussians.comparing import Run, agreement, one_run, run_of, trained
from leakgauge.lab.two_gaussians.training import PUBLISHED, Local

FEDAVG, LEARNED = "fedavg:validation=0.1", "learned-proportions"
AGGREGATORS = (
    FEDAVG,
    "fedboosting",
    "fedboosting:over=median",
    "fedboosting:form=softmax,metric=accuracy",
    "fedadam:lr=0.1,validation=0.1",
    LEARNED,
    f"{LEARNED}:own=1",
    f"{LEARNED}:every=5",
)
_SEEDS = 20
_trained_once = functools.cache(one_run)  # every aggregator is compared with FedAvg
_kept = functools.cache(trained)  # and with the centralised model


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


@dataclass(frozen=True, kw_only=True)
class PublishedToy(ToyFederations):
    """The same with the thesis's training, and with the centralised model beside it."""

    federations: int = 3
    rounds: int = 5
    samples: int = 40_000
    local: str = PUBLISHED

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:  # noqa: ARG002
        """On the CPU. Where decisions are compared, it is on a grid over the whole square."""
        own, usual, alike = list[Run](), list[Run](), list[float]()
        for number in range(self.federations):
            watch(0, 1, "", number / self.federations)
            seed, how = self.seed + number, Local.from_text(self.local)
            mine, plain, pooled = (
                _kept(self.case, spec, seed, self.rounds, self.samples, how)
                for spec in (self.aggregator, FEDAVG, CENTRALISED)
            )
            own.append(run_of(mine, self.case, self.aggregator, seed))
            usual.append(run_of(plain, self.case, FEDAVG, seed))
            alike.append(agreement(mine.model, pooled.model))
        return {
            "accuracy": tuple(r.accuracy for r in own),
            "accuracy_gained": tuple(r.accuracy - u.accuracy for r, u in zip(own, usual, strict=True)),
            "weight_ratio": tuple(r.ratio for r in own),
            "as_centralised": tuple(alike),
        }


def _cell(case: str, aggregator: str) -> Cell:
    weighs = aggregator.startswith(("fedboosting", LEARNED))
    asked = ["accuracy"]
    asked += ["accuracy_gained"] if aggregator != FEDAVG else []
    asked += ["weight_ratio"] if weighs else []
    return Cell(
        aggregator,
        case,
        Study(ToyFederations(case=case, aggregator=aggregator)),
        dict.fromkeys(asked),
        quick=2 if (case, aggregator) == ("flipped", "fedboosting") else 0,
    )


TABLE_TOY = Table(
    "4.2",
    "two Gaussians (the thesis has a picture, no numbers)",
    "Accuracy on samples of all clients that nobody trained on, with their right labels; what it is more than FedAvg's "
    "with the same start and samples; the first client's weight over a mean other one's, which where a client is "
    "poisoned is its weight over an honest one's. Means over 20 seeds.",
    "`alike` and `narrow` have two clients who see different parts of the square. `flipped`, `noise` and `liar` have "
    "ten clients of whom the first is poisoned. The thesis does not say where its Gaussians lie, so the cases are "
    "ours; how they were chosen stands in the documentation. The server's rate of `fedadam` is the best of four (0.03, "
    "0.1, 0.3 and 1) on two other seeds of `alike`; on `narrow` none of them reached FedAvg. `learned-proportions` is "
    "the thesis's future work, proportions by Adam; its text has no formula, so the rule is ours. Its defaults come "
    "from other seeds, the last of them after `own=1` had been measured here. It is worth no more than FedAvg where "
    "clients merely differ, and about as much as FedBoosting against poison; it does not fall for the liar. With "
    "`every=5` clients try models in two of the ten rounds.",
    tuple(_cell(case, aggregator) for aggregator in AGGREGATORS for case in CASES),
)

_TEXT, _RELEASED = "fedboosting:form=softmax", "fedboosting:form=inverse"
_PUBLISHED_ROWS = {
    "FedAvg": FEDAVG,
    "FedBoosting, Eq. 4.2": _TEXT,
    "FedBoosting, as released": _RELEASED,
    "learned proportions": LEARNED,
    "centralised": CENTRALISED,
}


def _published(row: str, case: str) -> Cell:
    spec = _PUBLISHED_ROWS[row]
    asked = ["accuracy"]
    asked += ["accuracy_gained"] if spec != FEDAVG else []
    asked += ["as_centralised"] if spec != CENTRALISED else []
    asked += ["weight_ratio"] if spec not in (FEDAVG, CENTRALISED) else []
    return Cell(row, case, Study(PublishedToy(case=case, aggregator=spec)), dict.fromkeys(asked))


TABLE_PUBLISHED = Table(
    "4.2-published",
    "two Gaussians with the thesis's training (it has a picture, no numbers)",
    "As table 4.2, over three seeds; and the share of a grid of 101 x 101 points of the square that the federation's "
    "model decides as the centralised model of the same seed does: what the thesis shows by eye.",
    "Thesis: two clients with 40,000 samples each, nine tenths for training, Adam with a rate of 0.003, batches of 8, "
    "one pass a round. So are these; rounds and Gaussians are not told and are ours, and clients keep Adam's state. "
    "The thesis claims that FedBoosting does better than FedAvg and decides more as the centralised "
    "model does; the rows say whether it did here.",
    tuple(_published(row, case) for row in _PUBLISHED_ROWS for case in ("alike", "narrow")),
    heavy="45,000 steps of Adam a federation",
)
