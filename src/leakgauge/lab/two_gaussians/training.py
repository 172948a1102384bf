"""How the clients of the toy train: plain SGD as in any federation, or Adam, as in the thesis.

Adam is written for this network alone: both layers of all clients side by side, one step for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.federation.federation import Federated
from leakgauge.settings import Settings, setting
from leakgauge.types import Client, SharedUpdate

PUBLISHED = "optimizer=adam,lr=0.003,batch_size=8"  # Ren 2022, section 4.3.1


@dataclass(frozen=True)
class Local(Settings):
    """Written `--local optimizer=adam,lr=0.003,batch_size=8`."""

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "the clients' training in a round"

    optimizer: str = setting("sgd", "of the clients; adam keeps its state from round to round", choices=("sgd", "adam"))
    lr: float = setting(1.0, "learning rate", above=0)
    batch_size: int = setting(10, "samples of a step", low=1)
    epochs: int = setting(1, "passes over a client's samples in a round", low=1)

    @property
    def training(self) -> Client:
        return Client(kind="fedavg", epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)


@dataclass
class AdamFederated(Federated):
    """A federation of the toy's perceptron whose clients, all of equal size, take Adam's steps."""

    moments: dict[str, Tensor] = field(default_factory=dict)  # of Adam, by name: (clients, ...), and its step count
    _BETAS: ClassVar[tuple[float, float]] = (0.9, 0.999)
    _EPS: ClassVar[float] = 1e-8

    def _updates(self, chosen: Sequence[int], number: int) -> SharedUpdate:
        all_clients = range(len(self.clients))  # moments are stored in this order, not in the order of the draw
        if sorted(chosen) != list(all_clients) or len({len(held) for held in self.trained_on}) > 1:
            raise NotApplicable("Adam here needs all clients in every round, each with the same number of samples")
        batch = self._samples(torch.stack(self.trained_on), all_clients)
        before = {n: p.detach() for n, p in self.model.named_parameters()}
        now = {n: p.expand(len(all_clients), *p.shape).clone().requires_grad_() for n, p in before.items()}
        rows = torch.arange(len(all_clients))[:, None]
        for epoch in range(self.local.epochs):
            sources = [generator(self.seed, f"order/{number}/{epoch}/{c}") for c in all_clients]
            order = torch.stack([torch.randperm(batch.labels.shape[1], generator=g) for g in sources])
            for some in order.split(self.local.batch_size, 1):  # type: ignore[no-untyped-call]
                loss = _losses(now, batch.inputs[rows, some], batch.labels[rows, some]).sum()
                self._move(now, torch.autograd.grad(loss, list(now.values())))
        return SharedUpdate("weight_delta", {n: (p.detach() - before[n])[list(chosen)] for n, p in now.items()})

    def _move(self, now: dict[str, Tensor], gradients: Sequence[Tensor]) -> None:
        """One step of Adam (Kingma and Ba 2015) for every client."""
        b1, b2 = self._BETAS
        count = self.moments.setdefault("steps", torch.zeros(()))
        count += 1
        corrections = 1 - b1**count, 1 - b2**count
        with torch.no_grad():
            for (name, tensor), g in zip(now.items(), gradients, strict=True):
                m = self.moments.setdefault(f"m/{name}", torch.zeros_like(g)).lerp_(g, 1 - b1)
                v = self.moments.setdefault(f"v/{name}", torch.zeros_like(g)).mul_(b2).addcmul_(g, g, value=1 - b2)
                tensor -= self.local.lr * (m / corrections[0]) / ((v / corrections[1]).sqrt() + self._EPS)


def _losses(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
    """(C,) the mean loss of each client's batch (C, B, 2): two layers, a sigmoid between them."""
    w1, b1, w2, b2 = weights.values()
    hidden = torch.sigmoid(torch.baddbmm(b1[:, None], inputs, w1.transpose(1, 2)))
    logits = torch.baddbmm(b2[:, None], hidden, w2.transpose(1, 2))
    each = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return each.view(labels.shape).mean(1)
