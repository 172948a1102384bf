"""What a user shared, by the names of the model at hand: no wrappers' prefixes, buffers apart from parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from leakgauge.errors import BadInput
from leakgauge.types import SharedUpdate

_PREFIXES = ("module.", "_module.", "_orig_mod.")  # DataParallel, Opacus, torch.compile


def plain_name(name: str) -> str:
    """A parameter's name without what wrappers put before it."""
    while prefix := next((p for p in _PREFIXES if name.startswith(p)), ""):
        name = name.removeprefix(prefix)
    return name


def by_own_names(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors without wrappers' prefixes, if that makes all of them the model's."""
    known = {n for n, _ in (*model.named_parameters(), *model.named_buffers())}
    plain = {plain_name(n): t for n, t in tensors.items()}
    return plain if not tensors.keys() <= known and plain.keys() <= known else dict(tensors)


def shared_as(kind: str, model: nn.Module, tensors: Mapping[str, Tensor]) -> SharedUpdate:
    """An update of the tensors (T, ...) under the model's names.

    Zeros for a parameter that is frozen, or that the model never uses, say nothing and are left out. Of a weight
    difference the buffers are differences too; they are kept as they stand after training.
    """
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    held = dict(model.named_buffers())
    parameters = {n: _floats(n, t) for n, t in tensors.items() if n not in held and (n not in frozen or bool(t.any()))}
    if kind != "weight_delta":
        return SharedUpdate(kind, parameters | {n: t for n, t in tensors.items() if n in held})  # refused: it has none
    moved = {n: t for n, t in tensors.items() if n in held}
    return SharedUpdate(kind, parameters, {n: held[n].detach().cpu() + t.cpu() for n, t in moved.items()})


def _floats(name: str, tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        raise BadInput(
            f"update tensor {name!r}",
            allowed="of real numbers",
            got=str(tensor.dtype).removeprefix("torch."),
            do="share real and imaginary parts as tensors of their own",
        )
    return tensor if tensor.dtype == torch.float64 else tensor.float()
