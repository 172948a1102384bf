"""An update that the user saved: safetensors, .pt (weights only, nothing is executed) or .npz, by parameter name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.client.naming import by_own_names, shared_as
from leakgauge.client.observe import check_update
from leakgauge.client.partial import ALL
from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.tensors import by_name, check_kinds, read_npz, read_safetensors, read_torch
from leakgauge.types import SharedUpdate

_BY_NAME = "a mapping from parameter names to tensors"


def read_update(path: Path, kind: str, model: nn.Module, layers: str = ALL) -> SharedUpdate:
    """Read and check an update. Tensors may have the parameter's shape (one client) or a trials axis in front.

    `layers` are those it must hold; see `client/partial.py`.
    """
    what = f"update file {str(path)!r}"
    tensors = by_own_names(model, _read(path, what))
    shapes = {n: p.dim() for n, p in model.named_parameters() if p.requires_grad}
    one_client = all(t.dim() == shapes.get(n, t.dim()) for n, t in tensors.items())
    update = shared_as(kind, model, {n: (t[None] if one_client else t) for n, t in tensors.items()})
    if not update.tensors:
        raise BadInput(what, allowed=_BY_NAME, got="no tensors", do="save one tensor per parameter")
    check_update(model, update, layers)
    do = "save it before the weights are loaded back, and check that the client trained on something"
    refuse_zeros(update, what, do)
    return update


def refuse_zeros(update: SharedUpdate, what: str, do: str) -> None:
    """A client whose update has no entry other than zero did not train."""
    for trial in range(update.trials):
        if not any(bool(tensor[trial].any()) for tensor in update.tensors.values()):
            got = "zeros only" + (f" for client {trial}" if update.trials > 1 else "")
            raise BadInput(what, allowed="with entries other than zero", got=got, do=do)


def _read(path: Path, what: str) -> dict[str, Tensor]:
    do = "save it as .safetensors, .npz, or .pt with torch.save({name: tensor})"
    if not path.is_file():
        raise BadInput(what, allowed="an existing file", got="no such file", do=do)
    try:
        if path.suffix == ".safetensors":
            return read_safetensors(path)[0]
        if path.suffix == ".npz":
            arrays = {name: torch.from_numpy(array) for name, array in read_npz(path).items()}
            check_kinds(arrays)
            return arrays
        loaded = read_torch(path)
    except (Unreadable, TypeError) as error:  # NumPy has kinds of numbers that torch has not
        raise BadInput(what, allowed="tensors and nothing else", got=error, do=do) from error
    if (tensors := by_name(loaded)) is not None:
        return tensors
    got = type(loaded).__name__.lstrip("_")
    if isinstance(loaded, Mapping) and (empty := [name for name, value in loaded.items() if value is None]):
        got, do = f"None for {str(empty[0])!r}", "leave out parameters without a gradient: if p.grad is not None"
    raise BadInput(what, allowed=_BY_NAME, got=got, do=do)
