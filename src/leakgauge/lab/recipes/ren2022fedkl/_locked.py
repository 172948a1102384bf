"""FedKL's training as a cell: every client keeps its own key and lock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from leakgauge.audit.run import Watch
from leakgauge.client.partition import iid
from leakgauge.data import load
from leakgauge.lab.locked_training import LockedTraining, train_locked
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.models import load_model
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import pick_device
from leakgauge.types import UNDEFENDED


@dataclass(frozen=True, kw_only=True)
class LockedFederation(Measurement):
    """Three clients with equal shares, as in the thesis, or one, which is centralised. Without a lock it is FedAvg."""

    unit: ClassVar[str] = "rounds"

    model: str
    data: str
    defense: str = UNDEFENDED
    clients: int = 3
    rounds: int = 20
    schedule: str = "falling"  # as in the thesis, at the same shares of the rounds, with weight decay; or constant

    @property
    def title(self) -> str:
        return f"training with {self.defense} of {self.model}, {self.data}: {self.size} rounds, seed {self.seed}"

    @property
    def setting(self) -> str:
        rate = "falling rates" if self.schedule == "falling" else "a constant rate"
        who = f"{self.clients} clients" if self.clients > 1 else "one client"
        return f"{who}, one pass over their samples in each, {rate}"

    @property
    def how(self) -> LockedTraining:
        """The thesis' values; its rates fall after 60, 120 and 160 of 200 rounds."""
        if self.schedule == "constant":
            return LockedTraining(rounds=self.rounds, weight_decay=0.0, lr_drops=())
        drops = tuple(max(1, round(share * self.rounds)) for share in (0.3, 0.6, 0.8))
        return LockedTraining(rounds=self.rounds, lr_drops=drops)

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        train, test = load(self.data, "train", data_root), load(self.data, "test", data_root)
        model = load_model(self.model, train.spec, self.seed).to(pick_device(device))
        for defense in parse_chain(self.defense):
            model = defense.prepare(model)
        watch(0, 1, "", 0.0)
        shares = iid(train.labels, self.clients, self.seed)
        found = train_locked(model, train, test, shares, self.how, self.seed)
        own = sum(found.own) / self.clients
        return {
            "accuracy": (own,),
            **{f"accuracy_client_{c}": (accuracy,) for c, accuracy in enumerate(found.own)},
            "accuracy_other_key": (sum(found.other_key) / self.clients,),
            "accuracy_server": (found.server,),
            "accuracy_first_lock": found.server_each,
            "accuracy_gap": (own - found.server,),
            "lock_share": (found.lock_share,),
            "round_ms": (1000 * found.round_seconds,),
        }
