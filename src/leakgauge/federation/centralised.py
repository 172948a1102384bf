"""What a federation is held against: the same rounds with the samples of a round's clients in one place.

One model trains on them with the clients' own settings, so it takes as many steps as they do together. Nothing is
hidden from anybody; nobody is poisoned, and no defense acts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from leakgauge.client.chain import client_step
from leakgauge.client.sums import apply_update
from leakgauge.engine.randomness import derived_seed
from leakgauge.federation.federation import Federated

NAME = "centralised"


@dataclass
class Centralised(Federated):
    """A federation whose clients hand their samples in. `run_round` moves it on."""

    def run_round(self, number: int) -> float:
        """One round; gives its wall-clock seconds without any evaluation."""
        began = time.perf_counter()
        pooled = torch.cat([self.trained_on[client] for client in self.drawn(number)])
        seed = derived_seed(self.seed, f"centralised/{number}")
        update = client_step(self.local)(self.model, self._samples(pooled[None], [0]), [seed])
        self.model = apply_update(self.model, update, self.federation.server_lr)
        device = next(self.model.parameters()).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began
