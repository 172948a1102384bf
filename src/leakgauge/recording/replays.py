"""What a client would have shared with some batch: its step replayed, exactly, in coarser arithmetic or drawn anew.

A replay is a mapping from parameter names to (R, P) in double precision, one row for each batch that was put in.
`other_trainings` are ways to train that cannot be claimed yet: where one explains an update, a refusal can name it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from leakgauge.client.chain import ClientStep, prepared
from leakgauge.client.fedavg import local_steps, mini_batches
from leakgauge.client.summed import seen_step
from leakgauge.engine.gradients import run_one_by_one, runs_one_by_one
from leakgauge.engine.losses import loss_of
from leakgauge.engine.randomness import derived_seed
from leakgauge.types import Batch, Client, Defense, SharedUpdate

SINGLE = 23  # bits of mantissa of float32
_SMOOTHED = 0.1
_DECAYS = (1e-4, 5e-4, 1e-2)
_MOMENTA = (0.9, 0.5, 0.99)

Rows = Mapping[str, Tensor]  # parameter name -> (R, P), double
Loss = Callable[[Tensor, Tensor], Tensor]  # logits and labels of a mini-batch -> one number
Optimiser = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]  # parameters and learning rate


@dataclasses.dataclass(frozen=True)
class ReplayedClient:
    """One way of training, to be replayed with any batch."""

    model: nn.Module
    local: Client
    defenses: tuple[Defense, ...]
    names: tuple[str, ...]  # parameters of the update

    def replay(
        self,
        batch: Batch,
        seeds: Sequence[int],
        *,
        bits: int | None = None,
        drops: bool = False,
        shuffled: bool = False,
    ) -> Rows:
        """In double precision. With `bits` of mantissa: SINGLE computes in single precision, as clients do; with fewer,
        weights and samples are rounded first.

        With `drops` the model's own dropout is at work, drawn from the first of `seeds`. If `shuffled`, each epoch
        visits the samples in an order of its own.
        """
        kind = torch.float32 if bits == SINGLE else torch.float64
        model, inputs = copy.deepcopy(self.model).to(kind), batch.inputs.to(kind)
        if bits is not None and bits < SINGLE:
            inputs = rounded(inputs, bits)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(rounded(parameter, bits))
        if drops:
            model = _with_dropout(model)
        if drops or runs_one_by_one(self.model):  # draws under vmap would need its own rules
            run_one_by_one(model)
        step = seen_step(ClientStep(self.local, shuffled), *self.defenses)
        with torch.random.fork_rng(enabled=drops):
            if drops:
                torch.manual_seed(seeds[0])
            shared = step(prepared(model, *self.defenses), Batch(inputs, batch.labels), list(seeds))
        return flat(shared, self.names)

    def drawing(self, batch: Batch, seeds: Sequence[int]) -> tuple[Defense, ...]:
        """The defenses that answer two seeds in two ways."""
        found = []
        for defense in self.defenses:
            alone = dataclasses.replace(self, defenses=(defense,))
            one, other = (alone.replay(batch, s) for s in (seeds, [derived_seed(seed, "again") for seed in seeds]))
            if any(not torch.equal(one[name], other[name]) for name in one):
                found.append(defense)
        return tuple(found)

    def shuffles(self, samples: int) -> bool:
        """Are there several mini-batches, in an order that nobody knows?"""
        return self.local.kind == "fedavg" and 0 < self.local.batch_size < samples

    def drops(self) -> bool:
        return any(isinstance(m, _DropoutNd) and m.p > 0 for m in self.model.modules())


def flat(update: SharedUpdate, names: Sequence[str]) -> Rows:
    return {name: update.tensors[name].detach().double().flatten(1) for name in names if name in update.tensors}


def rounded(tensor: Tensor, bits: int) -> Tensor:
    """To the nearest number with so many bits of mantissa behind the leading one."""
    mantissa, exponent = torch.frexp(tensor)
    scale = 2.0 ** (bits + 1)
    return torch.ldexp((mantissa * scale).round() / scale, exponent)


class _Dropping(nn.Module):
    """A dropout layer that drops in eval mode too."""

    def __init__(self, layer: _DropoutNd) -> None:
        super().__init__()
        self.layer = type(layer)(layer.p)

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.layer.train()(x)
        return dropped


def _with_dropout(model: nn.Module) -> nn.Module:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _DropoutNd):
                setattr(parent, name, _Dropping(child))
    return model


@dataclasses.dataclass(frozen=True)
class OtherTraining:
    """A way to train that cannot be claimed yet, in words, and the update it gives."""

    words: str
    loss: Loss | None = None  # None: that of the claim
    optimiser: Optimiser = torch.optim.SGD

    def replay(self, client: ReplayedClient, batch: Batch) -> Rows:
        """In double precision, without defenses, one client after another."""
        rows = [self._one(client, x, y) for x, y in zip(batch.inputs.double(), batch.labels, strict=True)]
        return {n: torch.stack([row[n] for row in rows]).flatten(1) for n in client.names if n in rows[0]}

    def _one(self, client: ReplayedClient, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        local, model = client.local, copy.deepcopy(client.model).double().eval()
        averaging = local.kind == "fedavg"
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.train(local.batchnorm == "train")
        moving = {n: p for n, p in model.named_parameters() if p.requires_grad}
        before = {n: p.detach().clone() for n, p in moving.items()}
        optimiser = self.optimiser(list(moving.values()), local.lr if averaging else 1.0)
        for part in mini_batches(len(inputs), local) if averaging else [slice(None)]:
            optimiser.zero_grad()
            with torch.enable_grad():
                loss = (self.loss or loss_of(client.local))(model(inputs[part]), labels[part])
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        sign = 1 if averaging else -1  # of one step at rate 1, the gradient's opposite
        return {n: sign * (p.detach() - before[n]) for n, p in moving.items()}


def other_trainings(client: ReplayedClient, samples: int) -> Iterator[OtherTraining]:
    """What people train with besides what can be claimed, as far as it would make a difference here."""
    smoothed = partial(F.cross_entropy, label_smoothing=_SMOOTHED)
    yield OtherTraining("the squared error against one-hot labels", _one_hot(F.mse_loss))
    yield OtherTraining(f"cross-entropy with labels smoothed by {_SMOOTHED:g}", smoothed)
    yield OtherTraining("binary cross-entropy for each class", _one_hot(F.binary_cross_entropy_with_logits))
    for decay in _DECAYS:
        yield _sgd(f"a weight decay of {decay:g}", decay=decay)
    if client.local.kind != "fedavg":
        return
    if local_steps(samples, client.local) > 1:
        first = _MOMENTA[0]
        for momentum in _MOMENTA:
            yield _sgd(f"SGD with momentum {momentum:g}", momentum)
        for decay in _DECAYS:
            yield _sgd(f"SGD with momentum {first:g} and a weight decay of {decay:g}", first, decay)
    yield OtherTraining("Adam", optimiser=torch.optim.Adam)


def _sgd(words: str, momentum: float = 0.0, decay: float = 0.0) -> OtherTraining:
    return OtherTraining(words, optimiser=partial(torch.optim.SGD, momentum=momentum, weight_decay=decay))


def _one_hot(loss: Loss) -> Loss:
    """The loss against labels as 0 and 1 for each class."""
    return lambda logits, labels: loss(logits, F.one_hot(labels, logits.shape[1]).to(logits))
