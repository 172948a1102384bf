"""The Lightning callback records and logs, and a training with it ends where one without it does."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from leakgauge.data import load
from leakgauge.errors import BadInput, MissingExtra
from leakgauge.integrations.lightning import leak_callback
from leakgauge.recording.recorded_folder import read_folder
from leakgauge.recording.recorder import Recorder

DIGITS = load("digits", "test", None)


def lightning() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("lightning.pytorch", reason="the package lightning is not installed")


def fit(callbacks: list[Any], accumulate: int = 1) -> tuple[Any, dict[str, float]]:
    pl = lightning()

    class Classifier(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            return cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    inputs, labels = DIGITS.take(torch.arange(8))
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        accumulate_grad_batches=accumulate,
    )
    module = Classifier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers
        trainer.fit(module, DataLoader(TensorDataset(inputs, labels), batch_size=1))
    return module, {name: float(value) for name, value in trainer.callback_metrics.items()}


def test_the_leak_is_logged_beside_the_loss_and_steps_are_recorded(tmp_path: Path) -> None:
    lightning()
    recorder = Recorder(tmp_path)
    _, logged = fit([leak_callback(every=4, data=DIGITS.spec, recorder=recorder, part="model")])
    assert logged["leak/linear/psnr_mean_per_image"] > 60
    assert logged["leak/labels/label_accuracy"] == 1
    entries = read_folder(tmp_path)
    assert [(e.kind, e.origin.round, e.origin.samples) for e in entries] == [("gradient", 0, 1), ("gradient", 4, 1)]
    assert "1.weight" in (tmp_path / "update-00000.json").read_text()


def test_training_ends_where_it_ends_without_the_callback(tmp_path: Path) -> None:
    lightning()
    plain, _ = fit([])
    watched, _ = fit([leak_callback(every=1, data=DIGITS.spec, recorder=Recorder(tmp_path), part="model")])
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    lightning()
    fit([leak_callback(every=1, recorder=Recorder(tmp_path, keep_private=True), part="model")], accumulate=4)
    assert [e.origin.samples for e in read_folder(tmp_path)] == [4, 4]


def test_what_is_asked_of_it_is_checked() -> None:
    with pytest.raises(BadInput, match="every"):
        leak_callback(every=0, data=DIGITS.spec)
    with pytest.raises(BadInput, match="neither"):
        leak_callback()


def test_without_lightning_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", None)
    with pytest.raises(MissingExtra, match=r"leakgauge\[lightning\]"):
        leak_callback(data=DIGITS.spec)
