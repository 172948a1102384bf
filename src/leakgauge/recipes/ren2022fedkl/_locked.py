"""FedKL's training as a cell: every client keeps its own key and lock."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from leakgauge.audit import Watch
from leakgauge.data import load
from leakgauge.fl.locked_training import LockedTraining, train_locked
from leakgauge.fl.partition import iid
from leakgauge.models import load_model
from leakgauge.plan import parse_chain
from leakgauge.recipes._measurement import Figures, Measurement
from leakgauge.stage import pick_device
from leakgauge.types import UNDEFENDED


@dataclass(frozen=True, kw_only=True)
class LockedFederation(Measurement):
    """Three clients with equal shares, as in the thesis; without a lock, federated averaging."""

    unit: ClassVar[str] = "rounds"

    model: str
    data: str
    defense: str = UNDEFENDED
    clients: int = 3
    rounds: int = 20

    @property
    def size(self) -> int:
        return self.rounds

    def resized(self, size: int) -> Self:
        return dataclasses.replace(self, rounds=size)

    @property
    def title(self) -> str:
        return f"training with {self.defense} of {self.model}, {self.data}: {self.size} rounds, seed {self.seed}"

    @property
    def setting(self) -> str:
        return f"{self.clients} clients, one pass over their samples in each"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        train, test = load(self.data, "train", data_root), load(self.data, "test", data_root)
        model = load_model(self.model, train.spec, self.seed).to(pick_device(device))
        for defense in parse_chain(self.defense):
            model = defense.prepare(model)
        watch(0, 1, "", 0.0)
        shares = iid(train.labels, self.clients, self.seed)
        found = train_locked(model, train, test, shares, LockedTraining(rounds=self.rounds), self.seed)
        return {
            "accuracy": (sum(found.own) / self.clients,),
            "accuracy_other_key": (sum(found.other_key) / self.clients,),
            "accuracy_server": (found.server,),
            "round_ms": (1000 * found.round_seconds,),
        }
