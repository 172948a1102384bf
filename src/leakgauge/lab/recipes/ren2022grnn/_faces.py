"""Table 3.15: who can be recognised on recovered faces. A classifier sees all of them, not only successful ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from leakgauge.audit.run import Watch, run_audit
from leakgauge.errors import LeakgaugeError
from leakgauge.lab.recipes.ren2022grnn._cells import DLG, GRNN, SMALL
from leakgauge.lab.reidentification import CEILING, FinishedRun, reidentify
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Study, Table
from leakgauge.types import Rate, Scenario


@dataclass(frozen=True, kw_only=True)
class Recognised(Measurement):
    """An attack on faces, and how often the right person is among the first of the classifier's answers."""

    unit: ClassVar[str] = "faces"

    model: str
    attack: str  # or `CEILING`: the true faces
    data: str = "lfw"
    victims: int = 50
    batch_size: int = 1  # of them in an update

    @property
    def size(self) -> int:
        return self._updates * self.batch_size

    def resized(self, size: int) -> Self:
        return dataclasses.replace(self, victims=size)

    @property
    def title(self) -> str:
        faces = f"{self.size} faces, {self.batch_size} in an update"
        return f"re-identification after {self.attack} on {self.model}, {self.data}: {faces}"

    @property
    def _updates(self) -> int:
        return max(1, self.victims // self.batch_size)

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        attack = "random-guess" if self.attack == CEILING else self.attack
        scenario = Scenario(
            model=self.model,
            data=self.data,
            attacks=(attack,),
            trials=self._updates,
            batch_size=self.batch_size,
            seed=self.seed,
            variants="plain",
        )
        report, pictures = run_audit(scenario, data_root=data_root, device=device, watch=watch)
        shown = reidentify(
            [FinishedRun("recipe", report, pictures)], seed=self.seed, data_root=data_root, device=device
        )
        wanted = CEILING if self.attack == CEILING else self.attack.partition(":")[0]
        row = next((row for row in shown.rows if row.attack == wanted), None)
        if row is None:
            raise LeakgaugeError(f"{self.attack} recovered no pictures")
        right = {"classifier_right": _each(shown.held_out["top_1"])}
        return {name: _each(rate) for name, rate in row.hits.items()} | right


def _each(rate: Rate) -> tuple[float, ...]:
    """Ones and zeros, as many as there are records."""
    hits = round((rate.value or 0.0) * rate.records)
    return (1.0,) * hits + (0.0,) * (rate.records - hits)


_SHOWN = {  # row -> attack, images in an update, faces
    "true faces": (CEILING, 1, 50),
    "DLG": (DLG, 1, 50),
    "CPL": ("cpl", 1, 50),
    "GRNN": (GRNN[SMALL], 1, 50),
    "GRNN, 4 images": (GRNN[SMALL], 4, 48),
    "GRNN, 8 images": (GRNN[SMALL], 8, 48),
    "GRNN, 16 images": (GRNN[SMALL], 16, 48),
    "mean of public faces": ("mean-image", 1, 50),
}
_NAMED = {  # column -> row -> top-1, top-3, top-5
    "LFW, LeNet": {  # where the thesis asks its ResNet-18
        "DLG": (0.2514, 0.4557, 0.5186),
        "GRNN": (0.3066, 0.7479, 0.8840),
        "GRNN, 4 images": (0.1745, 0.2464, 0.3111),
        "GRNN, 8 images": (0.0614, 0.1358, 0.2213),
        "GRNN, 16 images": (0.0290, 0.1043, 0.2208),
    },
    "LFW, LeNet, beside the thesis' DenseNet-121": {
        "DLG": (0.1557, 0.3357, 0.4214),
        "GRNN": (0.1146, 0.4312, 0.6303),
        "GRNN, 4 images": (0.0953, 0.1987, 0.2680),
        "GRNN, 8 images": (0.0306, 0.1025, 0.1983),
        "GRNN, 16 images": (0.0152, 0.0823, 0.1912),
    },
}
_NOT_PRINTED = (None, None, None)

TABLE_15 = Table(
    "3.15",
    "who is on a recovered face: top-1, top-3 and top-5",
    "every recovery counts, failed ones as misses; exact binomial intervals. Chance is 0.02, 0.06 and 0.10. Both "
    "columns show what our one classifier answers; the thesis asks a ResNet-18 and a DenseNet-121.",
    "The thesis has 100 people of VGG-Face, chance 0.01, 0.03 and 0.05, a ResNet-18 that names 97.27 % of its training "
    "pictures and a DenseNet-121 that names 97.11 %, and only successful recoveries: 700 for each attack at one image, "
    "1,112, 2,224 and 4,352 for GRNN at 4, 8 and 16. "
    "Ours are 50 people of LFW at 32 pixels, and a network of six convolutions that "
    "has never seen a victim's picture: the last line says how many other held-out pictures it names. The better "
    "recoveries here are due to an L-BFGS that shortens its steps, and to LeNet with sigmoids and weights U(-0.5, "
    "0.5).",
    tuple(
        Cell(
            row,
            column,
            Study(Recognised(model=SMALL, attack=attack, batch_size=images, victims=faces)),
            {f"top_{k}": f for k, f in zip((1, 3, 5), by_row.get(row, _NOT_PRINTED), strict=True)}
            | {"classifier_right": None},
        )
        for column, by_row in _NAMED.items()
        for row, (attack, images, faces) in _SHOWN.items()
        if column == "LFW, LeNet" or row in by_row
    ),
    heavy="a classifier is trained for each row, three minutes on one core.",
)
