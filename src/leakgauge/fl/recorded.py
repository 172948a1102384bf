"""An update that the user saved: safetensors, .pt (weights only, nothing is executed) or .npz, by parameter name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from leakgauge.errors import BadInput
from leakgauge.fl.observe import check_update
from leakgauge.fl.partial import ALL
from leakgauge.types import SharedUpdate


def read_update(path: Path, kind: str, model: nn.Module, layers: str = ALL) -> SharedUpdate:
    """Read and check an update. Tensors may have the parameter's shape (one client) or a trials axis in front.

    `layers` are those it must hold; see `fl/partial.py`.
    """
    tensors = _read(path)
    shapes = {n: p.dim() for n, p in model.named_parameters() if p.requires_grad}
    one_client = all(t.dim() == shapes.get(n, t.dim()) for n, t in tensors.items())
    floats = {n: (t[None] if one_client else t) for n, t in tensors.items()}
    floats = {n: t if t.dtype == torch.float64 else t.float() for n, t in floats.items()}
    buffers = {n: floats.pop(n) for n, _ in model.named_buffers() if n in floats}
    if not floats:
        raise BadInput(
            f"update file {str(path)!r}",
            allowed="a mapping from parameter names to tensors",
            got="no tensors",
            do="save one tensor per parameter",
        )
    update = SharedUpdate(kind, floats, buffers)
    check_update(model, update, layers)
    if empty := [t for t in range(update.trials) if not any(bool(tensor[t].any()) for tensor in floats.values())]:
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
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if path.suffix == ".npz":
            # NumPy leaves a broken archive open if it opened it itself.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return {name: torch.from_numpy(archive[name]) for name in archive.files}
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (
        SafetensorError,
        ValueError,
        EOFError,
        OSError,
        zipfile.BadZipFile,
        RuntimeError,
        KeyError,
    ) as error:
        raise BadInput(
            f"update file {str(path)!r}", allowed="readable", got=f"{type(error).__name__}", do=do
        ) from error
    except Exception as error:  # torch.load raises pickle.UnpicklingError for anything but plain tensors
        raise BadInput(
            f"update file {str(path)!r}", allowed="tensors and nothing else", got=type(error).__name__, do=do
        ) from error
    if not isinstance(loaded, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in loaded.items()):
        raise BadInput(
            f"update file {str(path)!r}",
            allowed="a mapping from parameter names to tensors",
            got=type(loaded).__name__,
            do=do,
        )
    return loaded
