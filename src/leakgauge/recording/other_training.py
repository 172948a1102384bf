"""Ways to train that cannot be claimed yet, tried in turn: where one explains an update, the refusal can name it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.fedavg import local_steps, mini_batches
from leakgauge.engine.losses import loss_of
from leakgauge.recording.replays import Client, Rows
from leakgauge.types import Batch

_SMOOTHED = 0.1
_DECAYS = (1e-4, 5e-4, 1e-2)
_MOMENTA = (0.9, 0.5, 0.99)

Loss = Callable[[Tensor, Tensor], Tensor]  # logits and labels of a mini-batch -> one number
Optimiser = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]  # parameters and learning rate


@dataclass(frozen=True)
class OtherTraining:
    """One such way, in words, and the update it gives."""

    words: str
    loss: Loss | None = None  # that of the claim
    optimiser: Optimiser | None = None  # plain SGD

    def replay(self, client: Client, batch: Batch) -> Rows:
        """In double precision, without defenses, one client after another."""
        rows = [self._one(client, x, y) for x, y in zip(batch.inputs.double(), batch.labels, strict=True)]
        return {n: torch.stack([row[n] for row in rows]).flatten(1) for n in client.names if n in rows[0]}

    def _one(self, client: Client, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        local, model = client.local, copy.deepcopy(client.model).double().eval()
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.train(local.batchnorm == "train")
        moving = {n: p for n, p in model.named_parameters() if p.requires_grad}
        before = {n: p.detach().clone() for n, p in moving.items()}
        make = self.optimiser or _plain
        optimiser = make(list(moving.values()), local.lr if local.kind == "fedavg" else 1.0)
        for part in mini_batches(len(inputs), local) if local.kind == "fedavg" else [slice(None)]:
            optimiser.zero_grad()
            with torch.enable_grad():
                loss = (self.loss or loss_of(client.local))(model(inputs[part]), labels[part])
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        sign = 1 if local.kind == "fedavg" else -1  # of one step at rate 1, the gradient's opposite
        return {n: sign * (p.detach() - before[n]) for n, p in moving.items()}


def other_trainings(client: Client, samples: int) -> Iterator[OtherTraining]:
    """What people train with besides what can be claimed, as far as it would make a difference here."""
    yield OtherTraining("the squared error against one-hot labels", _squared)
    yield OtherTraining(f"cross-entropy with labels smoothed by {_SMOOTHED:g}", _smoothed)
    yield OtherTraining("binary cross-entropy for each class", _binary)
    for decay in _DECAYS:
        yield OtherTraining(f"a weight decay of {decay:g}", optimiser=_decaying(decay))
    if client.local.kind != "fedavg":
        return
    if local_steps(samples, client.local) > 1:
        for momentum in _MOMENTA:
            yield OtherTraining(f"SGD with momentum {momentum:g}", optimiser=_with_momentum(momentum, 0.0))
        for decay in _DECAYS:
            words = f"SGD with momentum {_MOMENTA[0]:g} and a weight decay of {decay:g}"
            yield OtherTraining(words, optimiser=_with_momentum(_MOMENTA[0], decay))
    yield OtherTraining("Adam", optimiser=torch.optim.Adam)


def _plain(parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr)


def _with_momentum(momentum: float, decay: float) -> Optimiser:
    return lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum, weight_decay=decay)


def _decaying(decay: float) -> Optimiser:
    return lambda parameters, lr: torch.optim.SGD(parameters, lr, weight_decay=decay)


def _squared(logits: Tensor, labels: Tensor) -> Tensor:
    return F.mse_loss(logits, F.one_hot(labels, logits.shape[1]).to(logits))


def _smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=_SMOOTHED)


def _binary(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, F.one_hot(labels, logits.shape[1]).to(logits))
