"""Between Flower's records and named tensors; which of them are weights, and which only statistics beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from leakgauge.errors import BadInput, MissingExtra
from leakgauge.types import SharedUpdate

# Flower sends a state as one flat record. These parts of BatchNorm's are no parameters: no gradient trains them.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def flower() -> Any:
    """Flower's message types, or how to get them."""
    try:
        import flwr.app
    except ImportError as error:
        raise MissingExtra("this needs the package flwr; run: pip install 'leakgauge[flower]'") from error
    return flwr.app


def only_record(content: Any, where: str) -> tuple[str, Any]:
    """The one ArrayRecord of a message's content, with its key, whatever the app calls it."""
    found = list(content.array_records.items())
    if len(found) != 1:
        raise BadInput(
            f"Flower message {where}",
            allowed="one with exactly one ArrayRecord, the model",
            got=len(found),
            do="send the model in one record and everything else as metrics",
        )
    key, record = found[0]
    return key, record


def tensors_in(record: Any, names: Sequence[str] = ()) -> dict[str, Tensor]:
    """By name; `names` are for records made of bare arrays, whose keys are only numbers."""
    keys = list(record.keys())
    if names and len(names) != len(keys):
        raise BadInput(
            "names of the arrays",
            allowed=f"{len(keys)}, one for each",
            got=len(names),
            do="give list(model.state_dict()) of the app's model",
        )
    return {name: torch.from_numpy(record[key].numpy().copy()) for name, key in zip(names or keys, keys, strict=True)}


def record_of(tensors: Mapping[str, Tensor], like: Any) -> Any:
    """An ArrayRecord with the keys of `like`, in its order and its types."""
    app = flower()
    own = {key: array.numpy().dtype for key, array in like.items()}
    arrays = (tensors[key].detach().cpu().numpy().astype(kind) for key, kind in own.items())
    return app.ArrayRecord({key: app.Array(a) for key, a in zip(own, arrays, strict=True)})


def is_statistic(name: str, tensor: Tensor) -> bool:
    return name.rpartition(".")[2] in _STATISTICS or not tensor.is_floating_point()


def difference(after: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> SharedUpdate:
    """What the client's training moved (T = 1); statistics as they are afterwards."""
    if after.keys() != before.keys():
        odd = sorted(after.keys() ^ before.keys())
        raise BadInput(
            "arrays of a Flower reply",
            allowed="those that were sent, by the same names",
            got=f"a difference in {odd[0]!r}",
            do="let the client send back the model it received",
        )
    moved = {n: (_wide(t) - _wide(before[n]))[None] for n, t in after.items() if not is_statistic(n, t)}
    return SharedUpdate("weight_delta", moved, {n: t[None] for n, t in after.items() if is_statistic(n, t)})


def _wide(tensor: Tensor) -> Tensor:
    """Half-precision weights in float32: their difference would be rounded once more."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def moved(before: Mapping[str, Tensor], update: SharedUpdate) -> dict[str, Tensor]:
    """The weights that an update (T = 1) leads to, statistics replaced."""
    after = dict(before)
    for name, tensor in update.tensors.items():
        after[name] = before[name] + tensor[0].to(before[name])
    for name, tensor in update.buffers.items():
        if name in after:
            after[name] = tensor[0].to(before[name].dtype)
    return after
