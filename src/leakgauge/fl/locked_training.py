"""Federated training where every client keeps a lock of its own: what does a client get, and what does someone without?

FedKL's protocol (Ren 2023, chapter 5). The server sends everything but the locks; each client puts its own key and lock
into the model, trains, and sends everything but its lock, which it keeps for the next round. The server averages
weights and BatchNorm's buffers. On a model without a lock this is plain federated averaging, to compare with.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.data import Dataset
from leakgauge.engine.gradients import cross_entropy
from leakgauge.engine.randomness import generator
from leakgauge.fl.rounds import accuracy
from leakgauge.models._key_lock import PARTS, LockedNorm, draw_locks, locks_in

Lock = Mapping[str, Tensor]  # part -> values


@dataclass(frozen=True)
class LockedTraining:
    """How the clients train: SGD with Nesterov momentum, as in the thesis."""

    rounds: int = 10
    epochs: int = 1  # local passes in each round
    batch_size: int = 64
    lr: float = 0.01
    momentum: float = 0.9
    init: str = "default"  # first values of the locks; see `draw_locks`


@dataclass(frozen=True)
class LockedAccuracy:
    """Test accuracy of the global model after the last round, one figure per client where locks differ."""

    own: tuple[float, ...]  # with the client's own key and lock
    other_key: tuple[float, ...]  # with its lock and a random key
    server: float  # with a random key and a lock as first drawn: all that a server could try
    round_seconds: float  # median; the first round, which sets everything up, is left out if there are others


def train_locked(
    model: nn.Module, samples: Dataset, test: Dataset, clients: Sequence[Tensor], how: LockedTraining, seed: int
) -> LockedAccuracy:
    """Train `model`, which is left untouched, on clients that hold the samples at these indices."""
    shared = copy.deepcopy(model).eval()
    lock = next(iter(locks_in(shared).values()), None)
    count = len(clients)
    locks = _drawn(lock, [seed * count + c for c in range(count)], how.init)
    seconds = []
    for number in range(how.rounds):
        began = time.perf_counter()
        states = []
        for client, indices in enumerate(clients):
            order = torch.randperm(len(indices) * how.epochs, generator=generator(seed, f"locked/{number}/{client}"))
            worker, locks[client] = _trained(shared, locks[client], samples, indices[order % len(indices)], how)
            states.append(worker.state_dict())
        shared.load_state_dict(_mean(states))
        seconds.append(time.perf_counter() - began)
    strange = _drawn(lock, [-1 - seed], how.init)[0]
    return LockedAccuracy(
        own=tuple(accuracy(_with(shared, own), test) for own in locks),
        other_key=tuple(accuracy(_with(shared, {**own, **_key_of(strange)}), test) for own in locks),
        server=accuracy(_with(shared, strange), test),
        round_seconds=median(seconds[1:] or seconds),
    )


def _drawn(lock: LockedNorm | None, seeds: Sequence[int], init: str) -> list[Lock]:
    drawn = {} if lock is None else draw_locks(seeds, lock, init)
    return [{part: values[row] for part, values in drawn.items()} for row in range(len(seeds))]


def _key_of(lock: Lock) -> Lock:
    return {part: values for part, values in lock.items() if part == "key"}


def _with(model: nn.Module, lock: Lock) -> nn.Module:
    """A copy with this lock in its locked layer."""
    opened = copy.deepcopy(model)
    for layer in locks_in(opened).values():
        for part, values in lock.items():
            setattr(layer, part, values.clone())
    return opened


def _trained(
    model: nn.Module, lock: Lock, samples: Dataset, order: Tensor, how: LockedTraining
) -> tuple[nn.Module, Lock]:
    """The client's model after its epochs, and its lock, which learns with the weights; the key does not."""
    worker = _with(model, lock)
    for module in worker.modules():
        if isinstance(module, _BatchNorm):
            module.train()
    layers = list(locks_in(worker).values())
    learned: list[Tensor] = [p for p in worker.parameters() if p.requires_grad]
    learned += [values.requires_grad_() for layer in layers for values in (layer.weight, layer.bias)]
    optimiser = torch.optim.SGD(learned, lr=how.lr, momentum=how.momentum, nesterov=how.momentum > 0)
    for some in torch.split(order, how.batch_size):
        if len(some) == 1:  # BatchNorm has nothing to take statistics of
            continue
        inputs, labels = samples.take(some)
        optimiser.zero_grad()
        logits = worker(inputs.to(learned[0]))
        cross_entropy(logits, labels.to(logits.device)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    kept = {part: getattr(layer, part).detach() for layer in layers for part in PARTS}
    return worker.eval(), kept


def _mean(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Of weights and buffers alike; whole numbers, such as BatchNorm's batch counter, are rounded down."""
    return {name: torch.stack([s[name].double() for s in states]).mean(0).to(t.dtype) for name, t in states[0].items()}
