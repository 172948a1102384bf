"""A federation that learns to read as a cell."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from leakgauge.audit.run import Watch
from leakgauge.federation.centralised import NAME as CENTRALISED
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.lab.words.comparing import trained
from leakgauge.lab.words.real_sets import IN_PROPORTION, OTHERS, REAL
from leakgauge.lab.words.training import Reading


@dataclass(frozen=True, kw_only=True)
class ReaderFederation(Measurement):
    """Two clients, one for each renderer, with one aggregator."""

    unit: ClassVar[str] = "rounds"

    aggregator: str
    encryption: str = "none"
    training: Reading = field(default_factory=Reading)

    @property
    def size(self) -> int:
        return self.training.rounds

    def resized(self, size: int) -> Self:
        return dataclasses.replace(self, training=dataclasses.replace(self.training, rounds=size))

    @property
    def title(self) -> str:
        how = self.training
        hidden = "" if self.encryption == "none" else f" and {self.encryption}"
        return (
            f"reading with {self.aggregator}{hidden}, {how.batch_size} x {how.epochs}, width {how.width}: "
            f"{how.rounds} rounds, seed {self.seed}"
        )

    @property
    def setting(self) -> str:
        many = "one place with twice" if self.aggregator == CENTRALISED else "2 clients with"
        return f"{many} {self.training.words:,} words{'' if self.aggregator == CENTRALISED else ' each'}"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        run = trained(
            self.aggregator,
            self.encryption,
            self.training,
            seed=self.seed,
            device=device,
            data_root=data_root,
            watch=lambda done, of: watch(0, 1, "", done / of),
        )
        found: dict[str, tuple[float, ...]] = {
            "words_rendered": _outcomes(run.read["rendered"], run.words["rendered"]),
            "first_weight": (run.weights[0],),
            "round_ms": tuple(1000 * s for s in run.round_seconds[1:] or run.round_seconds),
            "bytes_up": (float(run.bytes_up),),
        }
        if REAL in run.read:
            found["words_iiit5k"] = _outcomes(run.read[REAL], run.words[REAL])
        tables = {f"words_{REAL}_in_proportion": REAL} | {f"words_{name}": name for name in OTHERS}
        for figure, name in tables.items():
            if (sized := name + IN_PROPORTION) in run.read:
                found[figure] = _outcomes(run.read[sized], run.words[sized])
        return found


def _outcomes(share: float, count: int) -> tuple[float, ...]:
    """A one for every word that was read, a zero for every other."""
    right = round(share * count)
    return (1.0,) * right + (0.0,) * (count - right)
