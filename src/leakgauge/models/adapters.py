"""Adapters in a frozen model (LoRA): their names as they are shared, and checkpoints that hold nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

_ADAPTER = re.compile(r"\.(lora_[A-Za-z_]+|modules_to_save)\.default(?=\.|$)")


def shared_name(name: str) -> str:
    """As PEFT sends it: without the adapter's own name, `lora_A.default.weight` -> `lora_A.weight`."""
    return _ADAPTER.sub(r".\1", name)


def by_model_names(tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """The same tensors under the model's names, where they come under those that PEFT sends."""
    own = {shared_name(name): name for name in names}
    return {own.get(name, name): tensor for name, tensor in tensors.items()}


def holds_all_that_is_trained(model: nn.Module, names: Iterable[str]) -> bool:
    """Are all parameters that are trained among these, and is something of the model frozen?"""
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return bool(frozen) and trained <= set(names)
