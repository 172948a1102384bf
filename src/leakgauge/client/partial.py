"""Partial updates: the client trains or shares, or the attacker sees, only the tensors of some layers.

A layer is a module with parameters of its own; its tensors travel together. `first:2` and `last:1` count layers in the
order in which the model lists them, `all` is every one; otherwise names of layers or tensors with + between them, as in
`conv1+fc`. A name with `*` stands for all tensors that it fits: `*lora_*+head`.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re

from torch import nn

from leakgauge.errors import BadInput
from leakgauge.settings import unknown_name
from leakgauge.types import SharedUpdate

ALL = "all"
SEPARATOR = "+"
_COUNTED = re.compile(r"(first|last):([0-9]+)")


def layers_of(model: nn.Module) -> dict[str, list[str]]:
    """The tensors of an update by the layer they belong to, in the model's order."""
    found: dict[str, list[str]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def shared_names(model: nn.Module, which: str, what: str = "shared layers") -> list[str]:
    """The tensors that `which` means, in the model's order."""
    layers = layers_of(model)
    tensors = [name for names in layers.values() for name in names]
    if which == ALL:
        return tensors
    if counted := _COUNTED.fullmatch(which):
        count = int(counted[2])
        if not 1 <= count <= len(layers):
            raise BadInput(
                what,
                allowed=f"1 to {len(layers)} of this model's layers",
                got=repr(which),
                do=f"for example {counted[1]}:1",
            )
        some = list(layers.values())[:count] if counted[1] == "first" else list(layers.values())[-count:]
        return [name for names in some for name in names]
    kept: set[str] = set()
    for word in which.split(SEPARATOR):
        inside = {name for name in tensors if name == word or name.startswith(f"{word}.")}
        if "*" in word:
            inside = set(fnmatch.filter(tensors, word))
        if not inside:
            raise unknown_name(what, word, [ALL, "first:1", "last:1", *layers, *tensors])
        kept |= inside
    return [name for name in tensors if name in kept]


def freeze_others(model: nn.Module, which: str) -> nn.Module:
    """The model itself, whose clients train only the tensors that `which` means; what was frozen before stays so."""
    if which != ALL:
        trained = set(shared_names(model, which, "local: trained"))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in trained)
    return model


def only_shared(update: SharedUpdate, model: nn.Module, which: str) -> SharedUpdate:
    """The same update with only these tensors; buffers pass as they are."""
    if which == ALL:
        return update
    return dataclasses.replace(update, tensors={name: update.tensors[name] for name in shared_names(model, which)})
