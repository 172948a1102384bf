"""Local steps: the client goes through its training several times and shares only where that led.

McMahan et al. 2017; Wei et al. 2020 (CPL), Table 9, as a defense: an attacker who takes the average for one gradient at
the weights it sent is wrong, the more so the longer the steps. Where single gradients are shared (FedSGD) the client
moves by `lr` times its gradient between them and shares their mean, the weight difference divided by -lr x steps. A
FedAvg client repeats its whole local training and shares the sum. One step changes nothing. Whatever stands before it
in a chain acts at every step, with new randomness each time.

CPL's released notebook does something else: it takes a single gradient of a model that was trained for so many batches.
Here the idea of its table is measured.

How to beat it: a server that agreed on number and rate of the steps replays them. Gradient matching unrolls them
(Geiping et al. 2020). The first-layer ratio stays as it is: every step multiplies the same sample.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from leakgauge.client.fedavg import local_steps
from leakgauge.client.gradient_behind import gradient_scale
from leakgauge.defenses._families import FitsRows, joined
from leakgauge.engine.randomness import derived_seed
from leakgauge.matching.compression import Signs
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Batch, Client, Fact, Observation, SharedUpdate, Step


@dataclass(frozen=True)
class LocalSteps(FitsRows):
    """Example: `--defense local-steps:steps=5`"""

    name: ClassVar[str] = "local-steps"
    summary: ClassVar[str] = "share only after several local steps"
    paper: ClassVar[str] = "Wei et al. 2020 (CPL), Table 9; McMahan et al. 2017"

    steps: int = setting(5, "times the client goes through its local training before it shares", low=1)
    lr: float = setting(0.01, "rate of the steps between gradients (fedsgd); fedavg has its own", above=0)

    def wrap(self, step: Step) -> Step:
        def repeated(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            first = step(model, batch, seeds)
            # From here on every client has weights of its own, and a step runs on one model.
            clients = ((batch.take([t]), seed, first.take([t])) for t, seed in enumerate(seeds))
            return joined([self._followed(step, model, *client) for client in clients])

        return step if self.idle else repeated

    def _followed(self, step: Step, model: nn.Module, batch: Batch, seed: int, first: SharedUpdate) -> SharedUpdate:
        """What one client shares after the steps that follow the first."""
        worker = copy.deepcopy(model)
        rate = -self.lr if first.kind == "gradient" else 1.0
        last, total = first, dict(first.tensors)
        for number in range(1, self.steps):
            _move(worker, last, rate)
            last = step(worker, batch, [derived_seed(seed, f"local-steps/{number}")])
            total = {name: t + last.tensors[name] for name, t in total.items()}
        parts = self.steps if first.kind == "gradient" else 1
        return SharedUpdate(first.kind, {name: t / parts for name, t in total.items()}, last.buffers)

    @property
    def idle(self) -> bool:
        return self.steps == 1

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        """All steps replayed. With plain steps both sides are mean gradients along the client's path.

        A client that trains again begins with a fresh optimiser. Where that divides by sizes there is nothing to
        replay: signs are matched as they are.
        """
        local: Client = observation.fact(Fact.LOCAL_TRAINING)
        if local.adaptive:
            return problem.replace(compression=problem.compression and Signs())
        if local.kind == "fedavg" and not _is_plain(local):
            scale = self.steps * gradient_scale(local, problem.shape[0] // problem.clients)
            shared = {name: observation.update.tensors[name] for name in problem.observed}
            unit = problem.length_unit if problem.unrolled is not None else problem.length_unit * -scale
            return problem.replace(observed=shared, unrolled=local, repeats=self.steps, moved=None, length_unit=unit)
        single = local.kind == "fedsgd"
        epochs, lr = (self.steps, self.lr) if single else (self.steps * local.epochs, local.lr)
        training = dataclasses.replace(local, kind="fedavg", epochs=epochs, lr=lr)
        scale = 1.0
        if observation.update.kind == "weight_delta":
            scale = -1.0 / (training.lr * local_steps(problem.shape[0] // problem.clients, training))
        observed = {name: observation.update.tensors[name] * scale for name in problem.observed}
        return problem.replace(observed=observed, unrolled=training, mean_of_steps=True, moved=None)


def _is_plain(local: Client) -> bool:
    """Is a weight difference the sum of the gradients times the rate, also if the training is gone through again?"""
    usual = Client(kind="fedavg")
    rules = ("optimizer", "momentum", "weight_decay", "schedule", "accumulate", "clip", "proximal", "control")
    return all(getattr(local, name) == getattr(usual, name) for name in rules)


def _move(worker: nn.Module, update: SharedUpdate, rate: float) -> None:
    """The worker's weights along one client's update, and its running statistics where they are shared."""
    with torch.no_grad():
        for name, tensor in update.tensors.items():
            worker.get_parameter(name).add_(tensor[0], alpha=rate)
        for name, tensor in update.buffers.items():
            worker.get_buffer(name).copy_(tensor[0])
