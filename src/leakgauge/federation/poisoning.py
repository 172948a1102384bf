"""Clients that harm the federation: they train on wrong labels, or send noise instead of what they learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput
from leakgauge.federation.aggregators.aggregator import Reported
from leakgauge.settings import Settings, setting
from leakgauge.types import SharedUpdate

_WORSE = 10.0  # a liar says that the others' models are this much worse than the worst result of the round


@dataclass(frozen=True)
class Poison(Settings):
    """The first clients of a federation are poisoned. Written `--poison kind=flip,clients=2`."""

    name: ClassVar[str] = "poison"
    summary: ClassVar[str] = "clients that harm the federation"

    kind: str = setting(
        "flip", "train on labels moved by one class (flip), or send noise (noise)", choices=("flip", "noise")
    )
    clients: int = setting(1, "how many of the clients", low=1)
    scale: float = setting(1.0, "norm of the noise, as a multiple of the norm of the model's weights", above=0)
    lies: bool = setting(False, "they also praise their own models and run the others' down")

    def check(self, clients: int) -> None:
        if self.clients >= clients:
            allowed = f"fewer than the {clients} clients there are"
            raise BadInput("poison: clients", allowed=allowed, got=self.clients, do="lower it")

    def labels(self, labels: Tensor, clients: Sequence[int], classes: int) -> Tensor:
        """(T, N) labels of these clients, as they train and test on them."""
        if self.kind != "flip":
            return labels
        bad = torch.tensor([c < self.clients for c in clients], device=labels.device)
        return torch.where(bad[:, None], (labels + 1) % classes, labels)

    def updates(
        self, updates: SharedUpdate, model: nn.Module, clients: Sequence[int], seed: int, number: int
    ) -> SharedUpdate:
        """What these clients send: noise as large as the model itself, spread evenly over its entries."""
        rows = [row for row, client in enumerate(clients) if client < self.clients]
        if self.kind != "noise" or not rows:
            return updates
        weights = torch.cat([p.detach().flatten() for n, p in model.named_parameters() if n in updates.tensors])
        std = self.scale * weights.norm() / len(weights) ** 0.5

        def changed(name: str, tensor: Tensor) -> Tensor:
            out = tensor.clone()
            for row in rows:
                g = generator(seed, f"poison/{number}/{clients[row]}/{name}")
                out[row] = torch.randn(tensor.shape[1:], generator=g).to(tensor) * std
            return out

        return updates.map(changed)

    def reported(self, reported: Reported, clients: Sequence[int], metric: str) -> Reported:
        """The results of the models, with those that liars report in place of their own."""
        liars = torch.tensor([c < self.clients for c in clients])
        if not self.lies or reported.training is None or reported.validation is None or not bool(liars.any()):
            return reported
        own, tried = reported.training.clone(), reported.validation.clone()
        best = own.min() if metric == "loss" else own.max()
        worst = _WORSE * tried.nan_to_num(posinf=0.0).max() if metric == "loss" else torch.zeros(())
        own[liars] = best
        tried[:, liars] = torch.where(liars[:, None], best, worst.to(tried)).expand(-1, int(liars.sum())).to(tried)
        return replace(reported, training=own, validation=tried)
