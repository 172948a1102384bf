"""Figure 6: the privacy score of every operation alone (claim 6, experiment 9 and extension 2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from leakgauge.audit.run import Watch
from leakgauge.data import load
from leakgauge.defenses.ats.operations import OPERATIONS, applied, draw
from leakgauge.defenses.ats.scores import privacy_scores
from leakgauge.engine.precision import set_precision
from leakgauge.engine.randomness import generator, uniform
from leakgauge.lab.policy_search import BLOCK, SINGLES
from leakgauge.lab.recipes.drabent2022ats._set_up import DATA, LENET, NAMES, NARROW, RESNET, SEMI_TRAINED, semi_trained
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Study, Table
from leakgauge.setup.setup import pick_device

CLAIMED = (3, 15, 26, 18, 1)  # claim 6: shift across 9, brightness 9 and 6, contrast 7 and 6
_SCORED = ((), *((n,) for n in SINGLES))  # untransformed pictures come first


@dataclass(frozen=True, kw_only=True)
class OperationScores(Measurement):
    """S_pri of each different operation over the same pictures, and how many of the five lowest are the claimed ones.

    Two of the 29 operations change nothing: their scores equal those of untransformed pictures.
    """

    unit: ClassVar[str] = "pictures"

    model: str
    data: str = "cifar100"
    pictures: int = 100
    rounds: int = 0  # of training, on a tenth of the data
    rule: str = "search"

    @property
    def title(self) -> str:
        return (
            f"scores of single operations on {self.model} after {self.rounds} rounds, {self.data}: {self.pictures} "
            f"pictures, seed {self.seed}"
        )

    @property
    def setting(self) -> str:
        return f"after {self.rounds:,} rounds" if self.rounds else "untrained"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        set_precision("float32")
        where = pick_device(device)
        samples = load(self.data, "test", data_root)
        model = semi_trained(
            self.model,
            self.data,
            samples.spec,
            self.rounds,
            rule=self.rule,
            seed=self.seed,
            device=where,
            data_root=data_root,
        )
        order = torch.randperm(len(samples), generator=generator(self.seed, "single"))[: self.pictures]
        own, labels = (t.to(where) for t in samples.take(order))
        noise = uniform([self.seed], "noise", tuple(own.shape))[0].to(own)
        scores: list[list[float]] = []  # of each operation, for each picture
        for first in range(0, len(_SCORED), BLOCK):
            some = _SCORED[first : first + BLOCK]
            seen = torch.stack([applied(own, draw([triple], [self.seed], len(own)).to(where)) for triple in some])
            scores += privacy_scores(model, noise, seen, labels).tolist()
            watch(0, 1, "", len(scores) / len(_SCORED))
        bare, *single = scores
        lowest = sorted(range(len(SINGLES)), key=lambda at: sum(single[at]))[: len(CLAIMED)]
        shared = sum(SINGLES[at] in CLAIMED for at in lowest)
        found: dict[str, tuple[float, ...]] = {"single_none": tuple(bare), "best_claimed": (float(shared),)}
        return found | {f"single_{n}": tuple(of) for n, of in zip(SINGLES, single, strict=True)}


_COLUMNS = {
    f"{DATA['cifar100']}, {NAMES[LENET]}, untrained": OperationScores(model=LENET),
    f"{DATA['cifar100']}, {NAMES[NARROW]}": OperationScores(model=NARROW, rounds=300, pictures=50),
    f"{DATA['cifar100']}, {NAMES[RESNET]}": OperationScores(model=RESNET, rounds=SEMI_TRAINED, rule="published"),
    f"{DATA['tiny-imagenet']}, {NAMES[LENET]}, untrained": OperationScores(model=LENET, data="tiny-imagenet"),
    f"{DATA['tiny-imagenet']}, {NAMES[RESNET]}": OperationScores(
        model=RESNET, data="tiny-imagenet", rounds=SEMI_TRAINED, rule="published"
    ),
}
_SHARED: dict[str, float | None] = {"cifar100": 4.0, "tiny-imagenet": 3.0}
_ROWS: dict[str, str] = {
    "no operation": "single_none",
    **{f"{OPERATIONS[n]} ({n}){', of the claimed five' if n in CLAIMED else ''}": f"single_{n}" for n in SINGLES},
}


def _cells() -> tuple[Cell, ...]:
    cells = []
    for column, measurement in _COLUMNS.items():
        quick = 4 if measurement.model == LENET and measurement.data == "cifar100" else 0
        for row, figure in _ROWS.items():
            cells.append(Cell(row, column, Study(measurement), {figure: None}, quick=quick))
        shared = _SHARED[measurement.data] if measurement.model == RESNET else None
        cells.append(
            Cell("of the five lowest, claimed", column, Study(measurement), {"best_claimed": shared}, quick=quick)
        )
    return tuple(cells)


FIGURE_6 = Table(
    "figure-6",
    "experiment 9 and extension 2: the privacy score of each operation alone",
    "S_pri, low is private: mean over pictures, each operation on the same ones from the same noise; Student's "
    "interval over pictures. The figure is printed without numbers.",
    "Claim 6: shift across 9, brightness 9 and 6, contrast 7 and 6 work best. The document finds four of them among "
    "its five lowest on CIFAR-100, and three on Tiny-ImageNet that it also found on CIFAR-100; its network is trained "
    "for 50 epochs on a tenth of the data. The fifty operations are 29 different ones. "
    "Contradicts on untrained LeNet, where shifts and inverted highlights have the lowest scores and only the largest "
    "shift is among the five; on the other networks we cannot tell before they are measured.",
    _cells(),
    heavy="the trained networks take a GPU.",
)
