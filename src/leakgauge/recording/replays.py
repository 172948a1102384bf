"""What a client would have shared with some batch: its step replayed, exactly, in coarser arithmetic or drawn anew.

A replay is a mapping from parameter names to (R, P) in double precision, one row for each batch that was put in.
`leakgauge.recording.other_claims` has the claims that a refusal can name.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from leakgauge.client.chain import ClientStep, prepared
from leakgauge.client.summed import seen_step
from leakgauge.engine.gradients import run_one_by_one, runs_one_by_one
from leakgauge.engine.randomness import derived_seed, generator
from leakgauge.types import Batch, Client, Defense, SharedUpdate

SINGLE = 23  # bits of mantissa of float32

Rows = Mapping[str, Tensor]  # parameter name -> (R, P), double


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
        shaken: int | None = None,
    ) -> Rows:
        """In double precision. With `bits` of mantissa: SINGLE computes in single precision, as clients do; with fewer,
        weights and samples are rounded first. What is not the program's own, a user's training or a pass under
        autocast, computes in single precision always.

        With a number `shaken`, weights and samples are moved by as much as rounding to `bits` may, drawn from it: every
        later operation then rounds in another way.

        With `drops` the model's own dropout is at work, drawn from the first of `seeds`. If `shuffled`, each epoch
        visits the samples in an order of its own.
        """
        kind = torch.float32 if bits == SINGLE or self.local.fit else torch.float64
        model, inputs = copy.deepcopy(self.model).to(kind), batch.inputs.to(kind)
        change = None
        if shaken is not None:
            change = partial(_shaken, bits=bits or SINGLE, source=generator(shaken, "rounding of a replay"))
        elif bits is not None and bits < SINGLE:
            change = partial(rounded, bits=bits)
        if change is not None:
            inputs = change(inputs)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(change(parameter))
        if drops:
            model = _with_dropout(model)
        if drops or runs_one_by_one(self.model):  # draws under vmap would need its own rules
            run_one_by_one(model)
        # How coarse the numbers are that were sent is read off them: what is replayed is not rounded again.
        local = dataclasses.replace(self.local, shared_as="float32")
        step = seen_step(ClientStep(local, shuffled), *self.defenses)
        with torch.random.fork_rng(enabled=drops):
            if drops:
                torch.manual_seed(seeds[0])
            shared = step(prepared(model, *self.defenses), Batch(inputs, batch.labels), list(seeds))
        return flat(shared, self.names)

    def drawing(self, batch: Batch, seeds: Sequence[int]) -> tuple[Defense, ...]:
        """The defenses that answer two seeds in two ways."""
        found = []
        for defense in self.defenses:
            alone = dataclasses.replace(self, defenses=(defense,), local=dataclasses.replace(self.local, fit=""))
            one, other = (alone.replay(batch, s) for s in (seeds, [derived_seed(seed, "again") for seed in seeds]))
            if any(not torch.equal(one[name], other[name]) for name in one):
                found.append(defense)
        return tuple(found)

    def shuffles(self, samples: int) -> bool:
        """Are there several mini-batches, in an order that nobody knows?"""
        return self.local.kind == "fedavg" and not self.local.fit and 0 < self.local.batch_size < samples

    def draws_itself(self, batch: Batch, seeds: Sequence[int]) -> bool:
        """Does the user's own training give two updates under two seeds?"""
        if not self.local.fit:
            return False
        bare = dataclasses.replace(self, defenses=())
        one, other = (bare.replay(batch, s) for s in (seeds, [derived_seed(seed, "again") for seed in seeds]))
        return any(not torch.equal(one[name], other[name]) for name in one)

    @property
    def turns_signs(self) -> bool:
        """May rounding move an entry by as much as the whole step does? A user's own training may do anything."""
        return self.local.kind == "fedavg" and (self.local.adaptive or bool(self.local.fit))

    def classes(self, batch: Batch) -> int:
        """How many outputs the model has."""
        with torch.no_grad():
            like = next(self.model.parameters())
            return int(self.model(batch.inputs[0, :1].to(like)).shape[-1])

    def drops(self) -> bool:
        return not self.local.fit and any(isinstance(m, _DropoutNd) and m.p > 0 for m in self.model.modules())


def flat(update: SharedUpdate, names: Sequence[str]) -> Rows:
    return {name: update.tensors[name].detach().double().flatten(1) for name in names if name in update.tensors}


def rounded(tensor: Tensor, bits: int) -> Tensor:
    """To the nearest number with so many bits of mantissa behind the leading one."""
    mantissa, exponent = torch.frexp(tensor)
    scale = 2.0 ** (bits + 1)
    return torch.ldexp((mantissa * scale).round() / scale, exponent)


def _shaken(tensor: Tensor, bits: int, source: torch.Generator) -> Tensor:
    """Each number moved by up to half of its last bit, if it had so many."""
    moved = torch.rand(tensor.shape, generator=source, dtype=torch.float64).to(tensor.device) - 0.5
    return (tensor.double() * (1 + moved * 2.0**-bits)).to(tensor.dtype)


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
