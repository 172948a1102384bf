"""What a client would have shared with some batch: its step replayed, exactly, in coarser arithmetic or drawn anew.

A replay is a mapping from parameter names to (R, P) in double precision, one row for each batch that was put in.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from leakgauge.client.chain import ClientStep, prepared
from leakgauge.client.summed import seen_step
from leakgauge.engine.gradients import run_one_by_one, runs_one_by_one
from leakgauge.engine.randomness import derived_seed, generator
from leakgauge.types import Batch, Defense, LocalTraining, SharedUpdate

Rows = Mapping[str, Tensor]  # parameter name -> (R, P), double
NOISE = 0.2  # of the range, in samples that are changed a little
POOLED = 2  # other batches that are taken from samples at hand


@dataclasses.dataclass(frozen=True)
class Client:
    """One way of training, to be replayed with any batch."""

    model: nn.Module
    local: LocalTraining
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
        """In double precision; with `bits` weights and samples are rounded to so many bits of mantissa first.

        With `drops` the model's own dropout is at work, drawn from the first of `seeds`. If `shuffled`, each epoch
        visits the samples in an order of its own.
        """
        model, inputs = copy.deepcopy(self.model).double(), batch.inputs.double()
        if bits is not None:
            inputs = rounded(inputs, bits)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(rounded(parameter, bits))
        return self._shared(model, Batch(inputs, batch.labels), seeds, drops, shuffled)

    def replay_single(self, batch: Batch, seeds: Sequence[int]) -> Rows:
        """In single precision, as clients compute."""
        return self._shared(copy.deepcopy(self.model).float(), Batch(batch.inputs.float(), batch.labels), seeds)

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
        """Are there several mini-batches, in an order that nobody told?"""
        return self.local.kind == "fedavg" and 0 < self.local.batch_size < samples

    def drops(self) -> bool:
        return any(isinstance(m, _DropoutNd) and m.p > 0 for m in self.model.modules())

    def under(self, defenses: Sequence[Defense]) -> Client:
        return dataclasses.replace(self, defenses=tuple(defenses))

    def _shared(
        self, model: nn.Module, batch: Batch, seeds: Sequence[int], drops: bool = False, shuffled: bool = False
    ) -> Rows:
        looped = runs_one_by_one(self.model)
        if drops:
            model, looped = _with_dropout(model), True  # draws under vmap would need its own rules
        if looped:
            run_one_by_one(model)
        step = seen_step(ClientStep(self.local, shuffled), *self.defenses)
        with torch.random.fork_rng(enabled=drops):
            if drops:
                torch.manual_seed(seeds[0])
            shared = step(prepared(model, *self.defenses), batch, list(seeds))
        return flat(shared, self.names)


def flat(update: SharedUpdate, names: Sequence[str]) -> Rows:
    return {name: update.tensors[name].detach().double().flatten(1) for name in names if name in update.tensors}


def rounded(tensor: Tensor, bits: int) -> Tensor:
    """To the nearest number with so many bits of mantissa behind the leading one."""
    mantissa, exponent = torch.frexp(tensor)
    scale = 2.0 ** (bits + 1)
    return torch.ldexp((mantissa * scale).round() / scale, exponent)


def shuffled(batch: Batch, seeds: Sequence[int]) -> Batch:
    """The samples of each row in an order of its own."""
    size = batch.labels.shape[1]
    order = torch.stack([torch.randperm(size, generator=generator(seed, "order")) for seed in seeds])
    order = order.to(batch.labels.device)
    row = torch.arange(len(order), device=order.device)[:, None]
    return Batch(batch.inputs[row, order], batch.labels[row, order])


def repeated(batch: Batch, times: int) -> Batch:
    """One row, so many times."""
    return Batch(batch.inputs.repeat_interleave(times, 0), batch.labels.repeat_interleave(times, 0))


def seeds_of_replays(seed: int, count: int) -> list[int]:
    return [derived_seed(seed, f"replay/{k}") for k in range(count)]


class _Dropping(nn.Module):
    """A dropout layer that drops in eval mode too."""

    def __init__(self, layer: _DropoutNd) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = type(self.layer)(self.layer.p).train()(x)
        return dropped


def _with_dropout(model: nn.Module) -> nn.Module:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _DropoutNd):
                setattr(parent, name, _Dropping(child))
    return model
