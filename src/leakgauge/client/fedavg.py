"""FedAvg: the client trains for some local steps and shares how its weights moved (McMahan et al. 2017)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.engine.gradients import LOSSES, parameters_of, trial_gradients, working_model
from leakgauge.engine.penalties import collecting
from leakgauge.engine.randomness import generator
from leakgauge.types import Batch, LocalTraining, SharedUpdate, Step


def fedavg(local: LocalTraining, shuffled: bool = False) -> Step:
    """A step that shares `weights after - weights before` of plain SGD.

    Samples are visited in the order given, or if `shuffled` in one of each epoch's own. BatchNorm layers in train mode
    also move their running statistics; those are shared as buffers.
    """

    def step(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        if local.batchnorm == "train" and any(isinstance(m, _BatchNorm) for m in model.modules()):
            return _one_by_one(model, batch, local, seeds if shuffled else ())
        return _side_by_side(model, batch, local, seeds if shuffled else ())

    return step


def mini_batches(samples: int, local: LocalTraining) -> Iterator[slice]:
    """The slices one client visits, epoch after epoch; the last of an epoch may be smaller."""
    size = local.batch_size or samples
    for _ in range(local.epochs):
        for start in range(0, samples, size):
            yield slice(start, min(start + size, samples))


def local_steps(samples: int, local: LocalTraining) -> int:
    """How many SGD steps stand behind one weight difference."""
    return sum(1 for _ in mini_batches(samples, local))


def _visits(batch: Batch, local: LocalTraining, seeds: Sequence[int]) -> Iterator[Batch]:
    """What each local step sees; with seeds every trial draws an order of its own for every epoch."""
    trials, samples = batch.labels.shape[:2]
    sources = [generator(seed, "order of samples") for seed in seeds]
    row = torch.arange(trials, device=batch.labels.device)[:, None]
    seen = batch
    for part in mini_batches(samples, local):
        if sources and part.start == 0:
            order = torch.stack([torch.randperm(samples, generator=source) for source in sources]).to(row.device)
            seen = Batch(batch.inputs[row, order], batch.labels[row, order])
        yield Batch(seen.inputs[:, part], seen.labels[:, part])


def _side_by_side(model: nn.Module, batch: Batch, local: LocalTraining, seeds: Sequence[int]) -> SharedUpdate:
    """All trials at once: each carries its own weights (T, *parameter)."""
    worker = working_model(model, local.batchnorm)
    before = parameters_of(worker)
    weights = {n: p.expand(batch.trials, *p.shape) for n, p in before.items()}
    for part in _visits(batch, local, seeds):
        gradients = trial_gradients(worker, part.inputs, part.labels, weights, loss_of=LOSSES[local.loss])
        weights = {n: w - local.lr * gradients[n].detach() for n, w in weights.items()}
    return SharedUpdate("weight_delta", {n: w - before[n] for n, w in weights.items()})


def _one_by_one(model: nn.Module, batch: Batch, local: LocalTraining, seeds: Sequence[int]) -> SharedUpdate:
    """The plain loop, which also moves the running statistics (vmap cannot update them in place)."""
    deltas: list[dict[str, Tensor]] = []
    buffers: list[dict[str, Tensor]] = []
    for trial in range(batch.trials):
        worker = copy.deepcopy(model).eval()
        for module in worker.modules():
            if isinstance(module, _BatchNorm):
                module.train()
        before = {n: p.detach().clone() for n, p in worker.named_parameters() if p.requires_grad}
        optimiser = torch.optim.SGD(worker.parameters(), lr=local.lr)
        for part in _visits(batch.take([trial]), local, seeds[trial : trial + 1]):
            optimiser.zero_grad()
            with collecting() as penalties:
                logits = worker(part.inputs[0])
            sum(penalties, LOSSES[local.loss](logits, part.labels[0])).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        after = dict(worker.named_parameters())
        deltas.append({n: after[n].detach() - b for n, b in before.items()})
        buffers.append({n: b.clone() for n, b in worker.state_dict().items() if n not in after})
    return SharedUpdate("weight_delta", _stack(deltas), _stack(buffers))


def _stack(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
