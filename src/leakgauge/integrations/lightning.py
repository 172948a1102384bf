"""A Lightning callback that records a training step, attacks it, and logs the leak beside the loss.

    data = DataSpec("mine", (1, 28, 28), 10, "image")
    trainer = Trainer(callbacks=[leak_callback(every=50, data=data, recorder=Recorder("recorded"))])

Every `every`-th optimiser step is taken as one that a client would share. With `data` it is attacked at once, by
attacks without a search, and scores are logged as `leak/ATTACK/SCORE`; with `recorder` it is written for `leakgauge
audit --recorded`. The gradient is the one before Lightning clips it, in full precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.audit.training_loop import CHEAP, leak_of
from leakgauge.errors import BadInput, MissingExtra
from leakgauge.recording.recorder import Recorder
from leakgauge.types import DataSpec

Pair = tuple[Tensor, Tensor]


def leak_callback(
    *,
    every: int = 50,
    data: DataSpec | None = None,
    attacks: Sequence[str] = CHEAP,
    recorder: Recorder | None = None,
    part: str = "",
    pick: Callable[[Any], Pair] = lambda batch: (batch[0], batch[1]),
) -> Any:
    """The callback. `part` names the network inside the LightningModule (`"model"`), "" for the module itself; `pick`
    takes inputs in [0, 1] and labels out of a batch."""
    if every < 1:
        raise BadInput("every", allowed="at least 1", got=every, do="give a number of optimiser steps")
    if data is None and recorder is None:
        raise BadInput("leak_callback", allowed="given data=, recorder= or both", got="neither", do="add one")
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError as error:
        needed = "leak_callback needs the package lightning; run: pip install 'leakgauge[lightning]'"
        raise MissingExtra(needed) from error

    class LeakCallback(Callback):  # type: ignore[misc]
        """Sees the batches of a step and, before the optimiser moves, its gradient."""

        def __init__(self) -> None:
            self.batches: list[Pair] = []  # those that are accumulated into one step
            self.warned: set[str] = set()

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
            self.batches.append(pick(batch))

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:  # noqa: ARG002
            batches, self.batches = self.batches, []
            if trainer.global_step % every or not trainer.is_global_zero or not batches:
                return
            inputs, labels = (torch.cat(side) for side in zip(*batches, strict=True))
            network: nn.Module = pl_module.get_submodule(part) if part else pl_module
            if recorder is not None:
                recorder.gradient(network, samples=len(labels), round=trainer.global_step, private=(inputs, labels))
            if data is not None:
                leak = leak_of(network, inputs, labels, data, attacks)
                for name, value in leak.scores.items():
                    pl_module.log(f"leak/{name}", value, batch_size=len(labels), rank_zero_only=True)
                for name in (n for n in leak.errors if n not in self.warned):
                    warnings.warn(f"leak/{name} is not logged: {leak.errors[name]}", stacklevel=2)
                self.warned |= leak.errors.keys()

    return LeakCallback()
