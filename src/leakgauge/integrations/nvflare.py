"""Record what NVFlare's clients share: a filter beside the job's own, without a change to the app.

    recipe = FedAvgRecipe(...)                      # as in the app's job.py
    record_updates(recipe, "/data/recorded", lr=0.01, epochs=2, batch_size=16)

The filter stands at the server, which sees all clients: on its way out it notes the weights that are sent, on the way
in it writes how far each client moved them. Where only a client can be changed, `record_updates(..., at="client")` puts
it there instead, and each client writes its own folder. `leakgauge audit --recorded` attacks what was written.

Whole weights and weight differences are read; what cannot be read is logged, and the federation goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.errors import BadInput, LeakgaugeError, MissingExtra
from leakgauge.integrations._flower_arrays import difference, is_statistic
from leakgauge.recording.recorded_folder import Origin
from leakgauge.recording.recorder import Recorder
from leakgauge.types import SharedUpdate

_LOG = logging.getLogger("leakgauge")
_WEIGHTS, _MOVED = "WEIGHTS", "WEIGHT_DIFF"  # NVFlare's names of the two
_TASK = "train"
_sent: dict[str, dict[str, Tensor]] = {}  # by folder: NVFlare makes one filter for each way, in one process
_recorders: dict[str, Recorder] = {}


def record_updates(recipe: Any, folder: str | Path, *, at: str = "server", **known: Any) -> Any:
    """Adds the filter to a recipe, both ways. `known` are `samples`, `lr`, `epochs`, `batch_size` and `batchnorm`.

    The folder is made absolute: NVFlare runs its parts in folders of its own.
    """
    place = str(Path(folder).absolute())
    if at == "server":
        recipe.add_server_output_filter(filter_class()(place, **known), tasks=[_TASK])
        recipe.add_server_input_filter(filter_class()(place, **known), tasks=[_TASK])
    elif at == "client":
        recipe.add_client_input_filter(filter_class()(place, **known), tasks=[_TASK])
        recipe.add_client_output_filter(filter_class()(place, by_client=True, **known), tasks=[_TASK])
    else:
        raise BadInput("at", allowed="server or client", got=repr(at), do="choose one of these")
    return recipe


def __getattr__(name: str) -> Any:
    if name == "RecordingFilter":  # NVFlare finds it by this name when it starts a job
        return filter_class()
    raise AttributeError(name)


@cache
def filter_class() -> Any:
    """`RecordingFilter`, made once NVFlare is there."""
    try:
        from nvflare.apis.dxo_filter import DXOFilter
    except ImportError as error:
        raise MissingExtra("this needs the package nvflare; run: pip install 'leakgauge[nvflare]'") from error

    class RecordingFilter(DXOFilter):  # type: ignore[misc]
        """Passes everything on as it is; writes what a client sends back after training."""

        def __init__(
            self,
            folder: str,
            samples: int | None = None,
            lr: float | None = None,
            epochs: int = 1,
            batch_size: int = 0,
            batchnorm: str = "train",
            by_client: bool = False,  # a folder for each client, below this one
        ) -> None:
            super().__init__([_WEIGHTS, _MOVED], None)
            self.folder, self.by_client = str(folder), by_client
            self.samples, self.lr, self.epochs = samples, lr, epochs
            self.batch_size, self.batchnorm = batch_size, batchnorm

        def process_dxo(self, dxo: Any, shareable: Any, fl_ctx: Any) -> None:
            try:
                if str(self.get_prop("__chain_type", "")) == "task_data":
                    _sent[self.folder] = tensors_of(dxo.data)
                else:
                    self._write(dxo, shareable, fl_ctx)
            except LeakgaugeError as error:
                _LOG.warning("not recorded: %s", error)

        def _write(self, dxo: Any, shareable: Any, fl_ctx: Any) -> None:
            sent = _sent.get(self.folder)
            update = update_of(dxo.data_kind, tensors_of(dxo.data), sent)
            client = _client(shareable, fl_ctx, self.by_client)
            origin = Origin(
                samples=self.samples,
                lr=self.lr,
                epochs=self.epochs,
                batch_size=self.batch_size,
                batchnorm=self.batchnorm,
                client=client,
                round=_round(shareable, fl_ctx),
            )
            tensors, buffers = ({n: t[0] for n, t in part.items()} for part in (update.tensors, update.buffers))
            place = f"{self.folder}/{client}" if self.by_client else self.folder
            recorder = _recorders.get(place) or _recorders.setdefault(place, Recorder(place))
            recorder.add("weight_delta", tensors, origin, buffers=buffers, weights=sent)

    RecordingFilter.__qualname__ = "RecordingFilter"
    return RecordingFilter


def tensors_of(data: Mapping[str, Any]) -> dict[str, Tensor]:
    """Arrays or tensors by parameter name."""
    found = {}
    for name, value in data.items():
        try:
            found[name] = torch.as_tensor(value).detach().cpu().clone()
        except (TypeError, ValueError, RuntimeError) as error:
            got, do = type(value).__name__, "put the filter before those that encrypt or compress"
            raise BadInput(f"NVFlare tensor {name!r}", allowed="an array of numbers", got=got, do=do) from error
    return found


def update_of(kind: str, data: Mapping[str, Tensor], sent: Mapping[str, Tensor] | None) -> SharedUpdate:
    """How a client moved the weights (T = 1), from its weights or from the difference that it made itself."""
    if sent is None and kind == _WEIGHTS:
        do = "add the filter on the way out, too: record_updates does both"
        raise BadInput("NVFlare result", allowed="one whose weights were seen when sent", got="none seen", do=do)
    start = sent if sent is not None else {n: torch.zeros_like(t) for n, t in data.items()}
    shared = {n: start[n] for n in data if n in start}
    if kind == _WEIGHTS:
        return difference(data, shared)
    tensors = {n: t[None] for n, t in data.items() if not is_statistic(n, t)}
    statistics = [n for n, t in data.items() if n in shared and is_statistic(n, t) and t.is_floating_point()]
    buffers = {n: (shared[n] + data[n])[None] for n in statistics}
    return SharedUpdate("weight_delta", tensors, buffers)


def _client(shareable: Any, fl_ctx: Any, itself: bool) -> str:
    """Who sent it: at the server its peer, at a client itself."""
    peer = fl_ctx.get_peer_context()
    known = (shareable.get_peer_props() or {}).get("__identity_name__") or (peer and peer.get_identity_name())
    return str((fl_ctx.get_identity_name() if itself else known) or "")


def _round(shareable: Any, fl_ctx: Any) -> int:
    found = shareable.get_header("current_round", fl_ctx.get_prop("current_round"))
    return int(found) if str(found).isdecimal() else 0
