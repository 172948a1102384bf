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
from leakgauge.reading.npz import read_npz
from leakgauge.reading.tensors import by_name, check_kinds, read_safetensors, read_torch
from leakgauge.types import SharedUpdate


def read_update(path: Path, kind: str, model: nn.Module, layers: str = ALL) -> SharedUpdate:
    """Read and check an update. Tensors may have the parameter's shape (one client) or a trials axis in front.

    `layers` are those it must hold; see `client/partial.py`.
    """
    tensors = by_own_names(model, _read(path))
    shapes = {n: p.dim() for n, p in model.named_parameters() if p.requires_grad}
    one_client = all(t.dim() == shapes.get(n, t.dim()) for n, t in tensors.items())
    update = shared_as(kind, model, {n: (t[None] if one_client else t) for n, t in tensors.items()})
    if not update.tensors:
        raise BadInput(
            f"update file {str(path)!r}",
            allowed="a mapping from parameter names to tensors",
            got="no tensors",
            do="save one tensor per parameter",
        )
    check_update(model, update, layers)
    if empty := [
        t for t in range(update.trials) if not any(bool(tensor[t].any()) for tensor in update.tensors.values())
    ]:
        raise BadInput(
            f"update file {str(path)!r}",
            allowed="with entries other than zero",
            got="zeros only" + (f" for client {empty[0]}" if update.trials > 1 else ""),
            do="save it before the weights are loaded back, and check that the client trained on something",
        )
    return update


def _read(path: Path) -> dict[str, Tensor]:
    do = "save it as .safetensors, .npz, or .pt with torch.save({name: tensor})"
    if not path.is_file():
        raise BadInput(f"update file {str(path)!r}", allowed="an existing file", got="no such file", do=do)
    what = f"update file {str(path)!r}"
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
    tensors = by_name(loaded)
    if tensors is None:
        if isinstance(loaded, Mapping) and any(value is None for value in loaded.values()):
            name = next(str(name) for name, value in loaded.items() if value is None)
            raise BadInput(
                what,
                allowed="a mapping from parameter names to tensors",
                got=f"None for {name!r}",
                do="leave out parameters without a gradient: if p.grad is not None",
            )
        raise BadInput(
            what, allowed="a mapping from parameter names to tensors", got=type(loaded).__name__.lstrip("_"), do=do
        )
    return tensors
