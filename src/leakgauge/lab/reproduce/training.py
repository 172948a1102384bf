"""A federated training as a cell: what a defense costs in accuracy, time and bytes, and what it promises."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from leakgauge.audit.federated_training import Trained, train_federation
from leakgauge.audit.run import Watch
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.types import UNDEFENDED, Client, Federation, Partition, Scenario


@dataclass(frozen=True, kw_only=True)
class FederatedTraining(Measurement):
    """A federation with a defense, round by round beside the same one without it; or the one without it alone."""

    unit: ClassVar[str] = "rounds"

    model: str
    data: str
    defense: str = UNDEFENDED
    partition: Partition = field(default_factory=lambda: Partition(kind="iid"))
    local: Client = field(default_factory=Client)
    federation: Federation = field(default_factory=Federation)

    @property
    def size(self) -> int:
        return self.federation.rounds

    def resized(self, size: int) -> Self:
        return dataclasses.replace(self, federation=dataclasses.replace(self.federation, rounds=size))

    @property
    def title(self) -> str:
        with_defense = "" if self.defense == UNDEFENDED else f" with {self.defense}"
        return f"training{with_defense} of {self.model}, {self.data}: {self.size} rounds, seed {self.seed}"

    @property
    def setting(self) -> str:
        return f"{self.federation.per_round} of {self.partition.clients} clients in each"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        scenario = Scenario(
            model=self.model,
            data=self.data,
            partition=self.partition,
            local=self.local,
            seed=self.seed,
            defenses=() if self.defense == UNDEFENDED else (self.defense,),
        )
        federation = dataclasses.replace(self.federation, evaluate=self._test_every)
        report = train_federation(
            scenario,
            federation,
            device=device,
            data_root=data_root,
            watch=lambda done, of, _: watch(0, 1, "", done / of),
        )
        bare, own = report.trained[0], report.trained[-1]
        found: dict[str, tuple[float, ...]] = {
            "accuracy": (own.accuracy,),
            "round_ms": tuple(1000 * s for s in _seconds(own)),
            "bytes_up": (float(own.bytes_up),),
        }
        if own.guarantee is not None:
            found["epsilon"] = (own.guarantee.epsilon,)
        if own is not bare:
            found["accuracy_lost"] = (bare.accuracy - own.accuracy,)
            found["slower"] = tuple(a / b for a, b in zip(_seconds(own), _seconds(bare), strict=True))
        return found | self._earlier_figures(own)

    @property
    def _test_every(self) -> int:
        """Rounds between two tests; there is always one after the last round."""
        return self.federation.rounds

    def _earlier_figures(self, own: Trained) -> dict[str, tuple[float, ...]]:  # noqa: ARG002
        """Figures of rounds before the last."""
        return {}


def _seconds(trained: Trained) -> list[float]:
    """The time of every round but the first, which prepares everything."""
    return [r.seconds for r in trained.rounds[1:] or trained.rounds]
