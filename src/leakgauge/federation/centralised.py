"""What a federation is compared with: the same rounds with the samples of a round's clients in one place.

One model trains on them with the clients' own settings, so it takes as many steps as they do together. Nothing is
hidden from anybody; nobody is poisoned, and no defense acts.
"""

from __future__ import annotations

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

    def _step(self, number: int) -> None:
        pooled = torch.cat([self.trained_on[client] for client in self.drawn(number)])
        seed = derived_seed(self.seed, f"centralised/{number}")
        update = client_step(self.local)(self.model, self._samples(pooled[None], [0]), [seed])
        self.model = apply_update(self.model, update, self.federation.server_lr)
