"""Federated training: clients are drawn, train side by side, and the server takes its step.

Defenses act as they do in an update that is attacked.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.partition import shares
from leakgauge.client.sums import apply_update
from leakgauge.data import Dataset
from leakgauge.engine.memory import fitting
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.federation.aggregators.aggregator import Aggregator, Reported
from leakgauge.federation.aggregators.fedavg import FedAvg
from leakgauge.federation.cross_validation import local_models, split_clients, tried
from leakgauge.federation.encryption.scheme import Encryption, Keys
from leakgauge.federation.exchange import EncryptedExchange, PlainExchange
from leakgauge.federation.poisoning import Poison
from leakgauge.models.locked_norm import locks_in
from leakgauge.types import Batch, Client, Defense, Federation, Partition, SharedUpdate

_COPIES = 6  # of an update while clients train side by side
_CLIENTS_APART = 1_000_003  # so that no two (round, client) pairs share a seed


def clients_of(samples: Dataset, partition: Partition, most: int, seed: int) -> list[Tensor]:
    """Who holds which samples, as indices; with `most`, 1 to that many of each label a client has."""
    if partition.kind == "none":
        allowed = "iid, classes or dirichlet in a federation"
        raise BadInput("partition: kind", allowed=allowed, got="none", do="write kind=iid")
    held = shares(samples.labels, partition, seed)
    if most:
        held = [_a_few(indices, samples.labels, most, seed, client) for client, indices in enumerate(held)]
    return [indices for indices in held if len(indices)]


@dataclass
class Federated:
    """A federation in the middle of its training. `run_round` moves it on; everything else stays as it is."""

    model: nn.Module  # the global model, with what the defenses put into it
    samples: Dataset
    clients: Sequence[Tensor]
    federation: Federation
    local: Client
    defenses: tuple[Defense, ...]
    seed: int
    # what clients keep back: client -> name -> (...)
    memory: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    aggregator: Aggregator = field(default_factory=FedAvg)
    encryption: Encryption | None = None
    poison: Poison | None = None
    server: dict[str, Tensor] = field(default_factory=dict)  # what the aggregator remembers between rounds
    ledger: Tensor = field(init=False)  # (clients, 2): the sum of a client's weights so far, and its rounds
    _keys: Keys | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.model = prepared(self.model, *self.defenses)
        self.defenses = tuple(d.begun(self.model, self.samples.spec.shape) for d in self.defenses)
        if locks_in(self.model):
            raise NotApplicable(
                "a locked normalisation leaves a lock with each client from round to round, which this federation does "
                "not; use leakgauge lab train-locked, or leakgauge.lab.locked_training from Python"
            )
        self.trained_on, self.kept_back = split_clients(self.clients, self.aggregator.validation, self.seed)
        self.ledger = torch.zeros(len(self.clients), 2, dtype=torch.float64)
        if self.poison is not None:
            self.poison.check(len(self.clients))
        settings, scheme, aggregator = self.federation, self.encryption, self.aggregator
        if settings.per_round > len(self.clients):
            allowed = f"at most {len(self.clients)}, the clients there are"
            do = "lower it, or add clients to --partition"
            raise BadInput("federation: per_round", allowed=allowed, got=settings.per_round, do=do)
        acting = [d.name for d in self.defenses if type(d).aggregate is not Defense.aggregate]
        if len(acting) > 1:
            allowed = "one that changes what the server does"
            raise BadInput("defenses", allowed=allowed, got=" and ".join(acting), do="leave one of them out")
        if acting and (type(aggregator) is not FedAvg or scheme is not None):
            allowed = f"fedavg without encryption beside {acting[0]}, which aggregates itself"
            got = aggregator.spec + (f" with {scheme.name}" if scheme else "")
            raise BadInput("aggregator", allowed=allowed, got=got, do="leave one of them out")
        if aggregator.cross_validates and settings.weighting != "equal":
            allowed = f"equal with {aggregator.name}, which weighs clients by itself"
            raise BadInput("federation: weighting", allowed=allowed, got=settings.weighting, do="leave it out")
        if any(d.keeps for d in self.defenses[:-1]):
            allowed = "one that keeps something back only as the last of a chain"
            raise BadInput("defenses", allowed=allowed, got="+".join(d.name for d in self.defenses), do="write it last")

    def run_round(self, number: int) -> float:
        """One round; gives its wall-clock seconds without any evaluation."""
        began = time.perf_counter()
        self._step(number)
        device = next(self.model.parameters()).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    def _step(self, number: int) -> None:
        chosen = self.drawn(number)
        updates = self._updates(chosen, number)
        if self.poison is not None:
            updates = self.poison.updates(updates, self.model, chosen, self.seed, number)
        exchange = self._exchange(updates, chosen, number)
        weights, memory = self.aggregator.weigh(self._reported(exchange, updates, chosen, number), self.server)
        self.ledger[chosen] += torch.stack([weights.cpu(), torch.ones(len(chosen), dtype=torch.float64)], 1)
        step, self.server = self.aggregator.step(exchange.mean(weights), memory)
        self.model = apply_update(self.model, step, self.federation.server_lr)

    def drawn(self, number: int) -> list[int]:
        """The clients of this round."""
        order = torch.randperm(len(self.clients), generator=generator(self.seed, f"round/{number}"))
        some: list[int] = order[: self.federation.per_round].tolist()
        return some

    def _exchange(self, updates: SharedUpdate, chosen: Sequence[int], number: int) -> PlainExchange | EncryptedExchange:
        if self.encryption is None:  # one defense may change what the server does
            server = next((d for d in self.defenses if type(d).aggregate is not Defense.aggregate), Defense())
            return PlainExchange(updates, server.aggregate, server.aggregate_weighted)
        self._keys = self._keys or self.encryption.keys()
        return EncryptedExchange(updates, self._keys, self.encryption.pieces, chosen, number)

    def _reported(
        self, exchange: PlainExchange | EncryptedExchange, updates: SharedUpdate, chosen: Sequence[int], number: int
    ) -> Reported:
        """What the server weighs clients by; results of local models only where the aggregator asks for them."""
        samples = torch.tensor([len(self.trained_on[c]) for c in chosen], dtype=torch.float64)
        reported = Reported(samples, self.federation.weighting, clients=torch.tensor(chosen))
        if not self.aggregator.cross_validates or (number - 1) % self.aggregator.every:
            return reported
        lr = self.federation.server_lr
        own = local_models(self.model, updates, lr)
        training = [
            self._tried({n: t[[i]] for n, t in own.items()}, [c], self.trained_on) for i, c in enumerate(chosen)
        ]
        fusing = self.aggregator.mixing_weights(reported, self.server, generator(self.seed, f"fusing/{number}"))
        mixtures = local_models(self.model, exchange.mixtures(fusing), lr)
        validation = self._tried(mixtures, chosen, self.kept_back)
        reported = dataclasses.replace(reported, training=torch.cat(training).flatten(), validation=validation)
        return reported if self.poison is None else self.poison.reported(reported, chosen, self.aggregator.metric)

    def _tried(self, models: Mapping[str, Tensor], clients: Sequence[int], holdings: Sequence[Tensor]) -> Tensor:
        """(T, clients) results of these models on what the clients hold."""
        parts = [self._samples(holdings[c][None], [c]) for c in clients]
        inputs, labels = torch.cat([p.inputs[0] for p in parts]), torch.cat([p.labels[0] for p in parts])
        owners = torch.repeat_interleave(torch.arange(len(clients)), torch.tensor([p.labels.shape[1] for p in parts]))
        return tried(self.model, models, inputs, labels, owners, self.aggregator.metric)

    def _updates(self, chosen: Sequence[int], number: int) -> SharedUpdate:
        """What the chosen clients send, in their order: those with equally many samples train side by side."""
        stateless = self.defenses[:-1] if self.defenses and self.defenses[-1].keeps else self.defenses
        step = chain(client_step(self.local), *stateless)
        found: dict[int, SharedUpdate] = {}
        for group in self._groups(chosen):
            batch = self._samples(torch.stack([self.trained_on[c] for c in group]), group)
            seeds = [(self.seed * _CLIENTS_APART + number * 9973 + c) % (2**31 - 1) for c in group]
            shared = step(self.model, batch, seeds)
            for row, client in enumerate(group):
                own = shared.take([row])
                found[client] = own if stateless is self.defenses else self._remembering(own, client)
        parts = [found[c] for c in chosen]
        tensors, buffers = _joined([p.tensors for p in parts]), _joined([p.buffers for p in parts])
        return dataclasses.replace(parts[0], tensors=tensors, buffers=buffers)

    def _groups(self, chosen: Sequence[int]) -> Iterator[list[int]]:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        size = sum(p.numel() * p.element_size() for p in parameters)
        at_once = fitting(_COPIES * size, parameters[0].device)
        by_size: dict[int, list[int]] = {}
        for client in chosen:
            by_size.setdefault(len(self.trained_on[client]), []).append(client)
        return (group[i : i + at_once] for group in by_size.values() for i in range(0, len(group), at_once))

    def _samples(self, indices: Tensor, clients: Sequence[int]) -> Batch:
        """(T, N) indices -> the samples as these clients have them, on the model's device."""
        like = next(self.model.parameters())
        inputs, labels = self.samples.take(indices)
        if self.poison is not None:
            labels = self.poison.labels(labels, clients, self.samples.spec.classes)
        return Batch(inputs.to(like), labels.to(like.device))

    def _remembering(self, shared: SharedUpdate, client: int) -> SharedUpdate:
        """The client's message (1, ...), which depends on what it kept back before."""
        memory = {name: t[None] for name, t in self.memory.get(client, {}).items()}
        message, kept = self.defenses[-1].remembering(shared, memory)
        self.memory[client] = {name: t[0] for name, t in kept.items()}
        return message


def _joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([own[name] for own in parts]) for name in parts[0]}


def _a_few(indices: Tensor, labels: Tensor, most: int, seed: int, client: int) -> Tensor:
    g = generator(seed, f"holdings/{client}")
    kept = []
    for label in torch.unique(labels[indices]).tolist():
        mine = indices[labels[indices] == label]
        count = int(torch.randint(1, most + 1, (), generator=g))
        kept.append(mine[torch.randperm(len(mine), generator=g)[:count]])
    return torch.cat(kept).sort().values
