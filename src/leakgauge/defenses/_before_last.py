"""A layer of the client's own in front of the last linear one, and clients that train one after another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from leakgauge.errors import NotApplicable
from leakgauge.models.structure import last_listed_linear
from leakgauge.types import Batch, SharedUpdate, Step


def with_last_linear(model: nn.Module, defense: str, changed: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """A copy of `model` with `changed` in the place of the last linear layer it lists."""
    name = last_listed_linear(model)
    if name is None:
        raise NotApplicable(f"{defense} needs a model with an nn.Linear layer; this one has none")
    model = copy.deepcopy(model)
    linear = model.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    if not name:  # the model is nothing but this layer
        return changed(linear)
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, changed(linear))
    return model


def with_own_draws(
    step: Step, kind: type[nn.Module], buffer: str, draw: Callable[[Sequence[int], torch.Size], Tensor]
) -> Step:
    """`step` by clients who each put a draw of their own, (T, *buffer), into the `buffer` of the last layer of `kind`.

    The draws differ, so the clients run one after another.
    """

    def drawn(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        worker = copy.deepcopy(model)
        *_, layer = (module for module in worker.modules() if isinstance(module, kind))
        public = layer.get_buffer(buffer)
        shared = []
        for trial, own in enumerate(draw(seeds, public.shape)):
            setattr(layer, buffer, own.to(public))
            shared.append(step(worker, batch.take([trial]), seeds[trial : trial + 1]))
        return joined(shared)

    return drawn


def joined(updates: Sequence[SharedUpdate]) -> SharedUpdate:
    """The updates of clients that trained one after another, as one update of all of them."""
    tensors, buffers = (
        {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        for parts in ([u.tensors for u in updates], [u.buffers for u in updates])
    )
    return SharedUpdate(updates[0].kind, tensors, buffers)
