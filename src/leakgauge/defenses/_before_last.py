"""A layer of the client's own in front of the last linear one, with a draw that each client makes for itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

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
        return SharedUpdate(shared[0].kind, _joined([s.tensors for s in shared]), _joined([s.buffers for s in shared]))

    return drawn


def _joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
