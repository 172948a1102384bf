"""Who can be recognised on recovered faces: all recoveries are shown to a classifier, not only successful ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from leakgauge.audit.run import Watch, run_audit
from leakgauge.errors import LeakgaugeError
from leakgauge.lab.reidentification import CEILING, FinishedRun, reidentify
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.types import Rate, Scenario


@dataclass(frozen=True, kw_only=True)
class Recognised(Measurement):
    """An attack on faces, and how often the right person is among the first of the classifier's answers."""

    unit: ClassVar[str] = "faces"

    model: str
    attack: str  # or the name of the ceiling: the true faces
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
