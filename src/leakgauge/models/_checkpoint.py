"""Reads a checkpoint without running anything in it, and says in one line what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.tensors import read_safetensors, read_torch

_WRAPPERS = ("state_dict", "model_state_dict", "model")  # keys that training scripts put around the tensors
_SAVE = "save model.state_dict() as .safetensors or with torch.save"


def load_weights(model: nn.Module, path: str) -> None:
    """Copy the checkpoint's tensors into the model; every name and shape must fit."""
    tensors = load_tensors(path)
    expected = model.state_dict()
    # A count that only old checkpoints lack and that nothing here reads.
    missing = [n for n in expected if n not in tensors and not n.endswith("num_batches_tracked")]
    extra = [n for n in tensors if n not in expected]
    if missing or extra:
        got = f"no {missing[0]!r}" if missing else f"the unknown {extra[0]!r}"
        raise _misfit(path, f"{got} ({len(missing)} missing, {len(extra)} unknown)")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            wanted = tuple(expected[name].shape)
            hint = ""
            if tensor.dim() and tuple(tensor.shape[1:]) == wanted[1:]:
                hint = f"; if it has {len(tensor)} classes, an .npz says so by an entry classes={len(tensor)}"
            raise _misfit(path, f"{name!r} of shape {tuple(tensor.shape)}, not {wanted}", hint)
    model.load_state_dict(tensors, strict=False)


def load_tensors(path: str) -> dict[str, Tensor]:
    """The checkpoint's tensors by parameter name, without a model to hold them against."""
    return _strip_parallel(_unwrap(path, _read(path)))


def _read(path: str) -> Any:
    what = f"weights {path!r}"
    suffix = Path(path).suffix
    if suffix not in (".safetensors", ".pt", ".pth"):
        raise BadInput(what, allowed="a .safetensors, .pt or .pth file", got=suffix or "no suffix", do=_SAVE)
    if not Path(path).is_file():
        raise BadInput(what, allowed="an existing file", got="no such file", do="check the path")
    try:
        return read_safetensors(Path(path))[0] if suffix == ".safetensors" else read_torch(Path(path))
    except Unreadable as error:
        raise BadInput(what, allowed="a checkpoint of plain tensors", got=error, do=_SAVE) from error


def _unwrap(path: str, loaded: Any) -> dict[str, Tensor]:
    for key in _WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
            break
    what = f"weights {path!r}"
    if not isinstance(loaded, Mapping):
        raise BadInput(what, allowed="tensors by name", got=type(loaded).__name__, do=_SAVE)
    for name, value in loaded.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise BadInput(what, allowed="tensors by name", got=f"{type(value).__name__} at {name!r}", do=_SAVE)
    return dict(loaded)


def _strip_parallel(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names without the `module.` that DataParallel puts before every one of them."""
    if tensors and all(name.startswith("module.") for name in tensors):
        return {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    return tensors


def _misfit(path: str, got: str, hint: str = "") -> BadInput:
    return BadInput(
        f"weights {path!r}",
        allowed="a checkpoint of this model",
        got=got,
        do=f"choose the model, its fields and the data it was saved for{hint}",
    )
