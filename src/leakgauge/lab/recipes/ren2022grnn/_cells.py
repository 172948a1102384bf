"""What the tables share: networks, data, attackers and victims."""

from __future__ import annotations

from typing import Any

from leakgauge.lab.reproduce.recipe import Run
from leakgauge.metrics.psnr import psnr_from_fedkl
from leakgauge.types import Client, Scenario

DATA = {"mnist": "MNIST", "cifar100": "CIFAR-100", "lfw": "LFW"}
SMALL, LARGE = "lenet-dlg", "resnet18-grnn"
LOSS = "scale=mixed,variation=squared"  # a sum of squares beside a mean: what all figures but Table 3.12's ran
GRNN = {SMALL: f"grnn:{LOSS}", LARGE: f"grnn:tv=1e-06,{LOSS}"}  # the paper's weights of total variation
DLG = "dlg:restarts=1"  # one attempt, as GRNN has
IG = "inverting-gradients:sign=hard,decay=steps"  # as released
BESIDE = {"DLG": DLG, "Inverting Gradients": IG}  # the other attacks on the same updates
SIZES = (1, 4, 8, 16, 32, 64, 128, 256)  # images in an update
_VICTIMS = {1: 50, 4: 20, 8: 10, 16: 8, 32: 4, 64: 2, 128: 2, 256: 1}
_FACES = 250  # faces to draw victims from, each once
_BATCH_STATISTICS = Client(batchnorm="train")  # as GRNN runs its ResNet


def attacked(model: str, data: str, *, trials: int, attack: str | None = None, size: int = 32, **more: Any) -> Run:
    """One scenario; every picture at `size` pixels, MNIST too."""
    if model == LARGE:
        more["local"] = _BATCH_STATISTICS
    pictures = data if data != "mnist" and size == 32 else f"{data}:size={size}"
    return Run(Scenario(model=model, data=pictures, attacks=(attack or GRNN[model],), trials=trials, **more))


def victims(data: str, size: int) -> int:
    """The number of updates with so many images; 0 if there are not enough faces."""
    return min(_VICTIMS[size], _FACES // size) if data == "lfw" else _VICTIMS[size]


def psnrs(reported: float | None) -> dict[str, float | None]:
    """The thesis' figure and the true PSNR behind it."""
    true = None if reported is None else round(psnr_from_fedkl(reported), 2)
    return {"psnr_thesis": reported, "psnr": true, "recognised": None}
