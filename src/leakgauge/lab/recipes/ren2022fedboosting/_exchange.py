"""Table 4.3-cost: CPU time to encrypt, add and open the updates of one round, without any training."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from leakgauge import catalog
from leakgauge.audit.run import Watch
from leakgauge.client.sums import weighted_mean
from leakgauge.engine.randomness import generator
from leakgauge.federation.exchange import EncryptedExchange, PlainExchange
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Study, Table
from leakgauge.lab.words.network import build
from leakgauge.types import SharedUpdate

_CLIENTS = 2


@dataclass(frozen=True, kw_only=True)
class ExchangeCost(Measurement):
    """Random updates as large as a CRNN of this width, with unequal weights. CPU time does not count other work."""

    unit: ClassVar[str] = "rounds"

    width: int
    encryption: str = "none"
    rounds: int = 3

    @property
    def title(self) -> str:
        return f"exchange of a CRNN of width {self.width}, {self.encryption}: {self.rounds} rounds, seed {self.seed}"

    @property
    def setting(self) -> str:
        return f"{_CLIENTS} clients"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:  # noqa: ARG002
        """On the CPU, where encryption runs."""
        entries = sum(t.numel() for t in build(self.width, 0).state_dict().values() if t.is_floating_point())
        drawn = 0.01 * torch.randn(_CLIENTS, entries, generator=generator(self.seed, "exchange"))
        updates, weights = SharedUpdate("weight_delta", {"all": drawn}), torch.tensor([0.4, 0.6], dtype=torch.float64)
        scheme = None if self.encryption == "none" else catalog.build("encryptions", self.encryption)
        keys = None if scheme is None else scheme.keys()
        spent = []
        for number in range(self.rounds):
            watch(0, 1, "", number / self.rounds)
            began = time.process_time()
            if scheme is None or keys is None:
                PlainExchange(updates, weighted_mean).mean(weights)
            else:
                EncryptedExchange(updates, keys, scheme.pieces, range(_CLIENTS), number).mean(weights)
            spent.append(1000 * (time.process_time() - began))
        sent = 4 * entries if scheme is None else scheme.bytes_up(entries)
        return {"exchange_cpu_ms": tuple(spent), "bytes_up": (float(sent),)}


TABLE_EXCHANGE = Table(
    "4.3-cost",
    "what encryption costs in a round",
    "CPU time of one process for two clients' updates: encrypting, adding and opening once, or the mean in the clear. "
    "Bytes are those of one client's update.",
    "Not in the thesis. CPU time, because the machine had other work. FedBoosting opens each client's model, or each "
    "mixture, on top of that. Paillier with keys of 2048 bits takes about sixty times as long as CKKS; see the "
    "documentation.",
    tuple(
        Cell(
            row,
            "plain" if encryption == "none" else "ckks",
            Study(ExchangeCost(width=width, encryption=encryption, rounds=rounds)),
            {"exchange_cpu_ms": None, "bytes_up": None},
            quick=1 if (width, encryption) == (8, "none") else 0,
        )
        for row, width, rounds in (("the small network", 8, 5), ("the published network", 64, 2))
        for encryption in ("none", "ckks")
    ),
)
