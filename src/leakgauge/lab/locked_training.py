"""Federated training in which every client keeps its own lock: the accuracy with that lock, and without it.

FedKL's protocol (Ren 2023, section 5.2.4). The server makes the model, the first lock in it, and hands it out. Each
client draws a key, puts it and its lock into the model, trains, and sends everything but its lock, which it keeps for
the next round. The server averages weights and BatchNorm's buffers, and tests with random keys in the first lock, the
only one it has. Without a lock this is plain federated averaging, and with one client it is centralised training. If
the lock of the model is not public, every client draws its own first lock.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.data import Dataset
from leakgauge.engine.losses import cross_entropy
from leakgauge.engine.randomness import generator
from leakgauge.federation.rounds import accuracy
from leakgauge.models.locked_norm import PARTS, LockedNorm, draw_locks, locks_in

Lock = Mapping[str, Tensor]  # part -> values


@dataclass(frozen=True)
class LockedTraining:
    """How the clients train: SGD with Nesterov momentum, weight decay and falling rates, as in the thesis."""

    rounds: int = 10
    epochs: int = 1  # local passes in each round
    batch_size: int = 64
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4  # of the locks too
    lr_drops: tuple[int, ...] = (60, 120, 160)  # rounds after which the rate falls; the thesis has 200 of them
    lr_factor: float = 0.2  # to this share of what it was
    init: str = "default"  # first values of locks that clients draw; see `draw_locks`
    random_keys: int = 5  # with which the server tests

    def rate(self, number: int) -> float:
        """Of round `number`, from 0."""
        return self.lr * self.lr_factor ** sum(number >= drop for drop in self.lr_drops)


@dataclass(frozen=True)
class LockedAccuracy:
    """Test accuracy of the global model after the last round, one figure per client where locks differ."""

    own: tuple[float, ...]  # with the client's own key and lock
    other_key: tuple[float, ...]  # with its lock and a random key
    server: float  # mean over random keys in the first lock, which is all a server has, or in a fresh one
    server_each: tuple[float, ...]  # the same for each of the random keys
    lock_share: float  # numbers in the lock, as a share of all numbers that are trained
    round_seconds: float  # median; the first round, which prepares everything, is left out if there are others


def train_locked(
    model: nn.Module, samples: Dataset, test: Dataset, clients: Sequence[Tensor], how: LockedTraining, seed: int
) -> LockedAccuracy:
    """Train `model`, which is left untouched, on clients that hold the samples at these indices."""
    shared = copy.deepcopy(model).eval()
    lock = next(iter(locks_in(shared).values()), None)
    count = len(clients)
    locks = _first_locks(lock, [seed * count + c for c in range(count)], how.init)
    seconds = []
    for number in range(how.rounds):
        began = time.perf_counter()
        states = []
        for client, indices in enumerate(clients):
            order = torch.randperm(len(indices) * how.epochs, generator=generator(seed, f"locked/{number}/{client}"))
            batches = torch.split(indices[order % len(indices)], how.batch_size)
            worker, locks[client] = _trained(shared, locks[client], samples, batches, how, how.rate(number))
            states.append(worker.state_dict())
        shared.load_state_dict(_mean(states))
        seconds.append(time.perf_counter() - began)
    others = _first_locks(lock, [-1 - seed - 1000 * k for k in range(how.random_keys if lock else 1)], how.init)
    tried = tuple(accuracy(_with(shared, each), test) for each in others)
    return LockedAccuracy(
        own=tuple(accuracy(_with(shared, own), test) for own in locks),
        other_key=tuple(accuracy(_with(shared, {**own, **_key_of(others[0])}), test) for own in locks),
        server=fmean(tried),
        server_each=tried,
        lock_share=_lock_share(shared, lock),
        round_seconds=median(seconds[1:] or seconds),
    )


def _first_locks(lock: LockedNorm | None, seeds: Sequence[int], init: str) -> list[Lock]:
    """A lock for each seed: a drawn key, with the server's scale and shift if they are public, else with drawn ones."""
    if lock is None:
        return [{} for _ in seeds]
    drawn = draw_locks(seeds, lock, init)
    own: list[Lock] = [{part: values[row] for part, values in drawn.items()} for row in range(len(seeds))]
    if not lock.public:
        return own
    return [{"key": each["key"], "weight": lock.weight.detach(), "bias": lock.bias.detach()} for each in own]


def _lock_share(model: nn.Module, lock: LockedNorm | None) -> float:
    if lock is None:
        return 0.0
    inside = lock.weight.numel() + lock.bias.numel()
    return inside / (inside + sum(p.numel() for p in model.parameters() if p.requires_grad))


def _key_of(lock: Lock) -> Lock:
    return {part: values for part, values in lock.items() if part == "key"}


def _with(model: nn.Module, lock: Lock) -> nn.Module:
    """A copy with this lock in its locked layer."""
    copied = copy.deepcopy(model)
    for layer in locks_in(copied).values():
        for part, values in lock.items():
            setattr(layer, part, values.clone())
    return copied


def _trained(
    model: nn.Module, lock: Lock, samples: Dataset, batches: Sequence[Tensor], how: LockedTraining, lr: float
) -> tuple[nn.Module, Lock]:
    """The client's model after its epochs, and its lock, which learns with the weights; the key does not."""
    worker = _with(model, lock)
    for module in worker.modules():
        if isinstance(module, _BatchNorm):
            module.train()
    layers = list(locks_in(worker).values())
    learned: list[Tensor] = [p for p in worker.parameters() if p.requires_grad]
    learned += [values.requires_grad_() for layer in layers for values in (layer.weight, layer.bias)]
    optimiser = torch.optim.SGD(
        learned, lr=lr, momentum=how.momentum, nesterov=how.momentum > 0, weight_decay=how.weight_decay
    )
    for some in batches:
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
