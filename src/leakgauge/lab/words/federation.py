"""A federation that learns to read: clients train in turn, and their updates are sent and weighted as in any other.

Exchange, encryption, mixing and aggregators are those of `leakgauge train`. Each client keeps the
state of its optimiser and does not share it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from leakgauge.client.sums import apply_update, weighted_mean
from leakgauge.engine.randomness import generator
from leakgauge.federation.aggregators.aggregator import Aggregator, Reported
from leakgauge.federation.cross_validation import local_models, split_clients
from leakgauge.federation.encryption.scheme import Encryption, Keys
from leakgauge.federation.exchange import EncryptedExchange, PlainExchange
from leakgauge.lab.words.training import Reading, Samples, optimizer_of, results, train_locally
from leakgauge.types import SharedUpdate

_LR_DROP = 0.9  # share of the clients' learning rate that is lost, evenly over the rounds


@dataclass
class Readers:
    """A federation during its training; `run_round` runs the next round."""

    model: nn.Module
    clients: Sequence[Samples]
    how: Reading
    aggregator: Aggregator
    encryption: Encryption | None
    seed: int
    server: dict[str, Tensor] = field(default_factory=dict)  # what the aggregator remembers between rounds
    weights: list[Tensor] = field(default_factory=list)  # (clients,) of each round
    _keys: Keys | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        everything = [torch.arange(len(client)) for client in self.clients]
        trained_on, kept = split_clients(everything, self.aggregator.validation, self.seed)
        self._train = [c.take(some) for c, some in zip(self.clients, trained_on, strict=True)]
        self._kept = [c.take(some) for c, some in zip(self.clients, kept, strict=True)]
        self._workers = [copy.deepcopy(self.model) for _ in self.clients]
        self._optimizers = [optimizer_of(worker, self.how) for worker in self._workers]

    def run_round(self, number: int) -> float:
        """Run one round; returns its wall-clock seconds, without any evaluation of the global model."""
        began = time.perf_counter()
        updates = self._updates(number)
        exchange = self._exchange(updates, number)
        weights, memory = self.aggregator.weigh(self._reported(exchange, updates, number), self.server)
        self.weights.append(weights)
        step, self.server = self.aggregator.step(exchange.mean(weights), memory)
        self.model = apply_update(self.model, step)
        device = next(self.model.parameters()).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    def _updates(self, number: int) -> SharedUpdate:
        """What the clients send: how their weights moved, and their running statistics; (clients, ...)."""
        before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        for client, worker in enumerate(self._workers):
            worker.load_state_dict(self.model.state_dict())
            for group in self._optimizers[client].param_groups:
                group["lr"] = self.how.lr * (1 - _LR_DROP * (number - 1) / self.how.rounds)
            g = generator(self.seed, f"reader/{number}/{client}")
            train_locally(worker, self._optimizers[client], self._train[client], self.how, g)
        moved = [dict(worker.named_parameters()) for worker in self._workers]
        statistics = [dict(worker.named_buffers()) for worker in self._workers]
        return SharedUpdate(
            "weight_delta",
            {n: torch.stack([own[n].detach() - was for own in moved]) for n, was in before.items()},
            {n: torch.stack([own[n].clone() for own in statistics]) for n in statistics[0]},
        )

    def _exchange(self, updates: SharedUpdate, number: int) -> PlainExchange | EncryptedExchange:
        if self.encryption is None:
            return PlainExchange(updates, weighted_mean)
        self._keys = self._keys or self.encryption.keys()
        return EncryptedExchange(updates, self._keys, self.encryption.pieces, range(len(self.clients)), number)

    def _reported(self, exchange: PlainExchange | EncryptedExchange, updates: SharedUpdate, number: int) -> Reported:
        """What clients report: their sizes, and with cross-validation the results of all models or mixtures."""
        sizes = torch.tensor([len(samples) for samples in self._train], dtype=torch.float64)
        reported = Reported(sizes, "equal", clients=torch.arange(len(sizes)))
        if not self.aggregator.cross_validates or (number - 1) % self.aggregator.every:
            return reported
        own = local_models(self.model, updates, lr=1.0)
        fusing = self.aggregator.mixing_weights(reported, self.server, generator(self.seed, f"fusing/{number}"))
        tried = local_models(self.model, exchange.mixtures(fusing), lr=1.0)
        # Training results are taken from as many training samples as are held back.
        seen = [train.take(torch.arange(len(kept))) for train, kept in zip(self._train, self._kept, strict=True)]
        training = [self._result(own, client, samples) for client, samples in enumerate(seen)]
        validation = [[self._result(tried, i, samples) for samples in self._kept] for i in range(len(self.clients))]
        return replace(
            reported,
            training=torch.tensor(training, dtype=torch.float64),
            validation=torch.tensor(validation, dtype=torch.float64),
        )

    def _result(self, models: dict[str, Tensor], which: int, samples: Samples) -> float:
        model = copy.deepcopy(self.model)
        model.load_state_dict({name: tensor[which] for name, tensor in models.items()}, strict=False)
        loss, right = results(model, samples)
        return loss if self.aggregator.metric == "loss" else right
