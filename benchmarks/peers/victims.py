"""The same victims for everybody: networks at random, pictures of CIFAR, and the gradients that their clients share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.models import load_model
from leakgauge.types import DataSpec

NETWORKS = {  # as the tables name them: the model's spec and the pictures
    "lenet": ("lenet-dlg:activation=relu,init=default", "cifar100"),
    "convnet": ("convnet", "cifar100"),
    "resnet18": ("resnet18", "cifar100"),
    "resnet20": ("resnet20:width=8", "cifar10"),
}


@dataclass(frozen=True)
class Victims:
    """T clients with N pictures each, whose labels everybody is told."""

    model: nn.Module
    data: DataSpec
    inputs: Tensor  # (T, N, 3, 32, 32)
    labels: Tensor  # (T, N)
    gradients: dict[str, Tensor]  # name -> (T, *parameter)


def victims(network: str, batch: int, count: int, pictures: Path, half: str, device: str, seed: int = 0) -> Victims:
    """`pictures` is the file that `pictures.py` wrote."""
    spec, name = NETWORKS[network]
    held = np.load(pictures)
    data = DataSpec(
        name,
        (3, 32, 32),
        10 if name == "cifar10" else 100,
        "image",
        tuple(held[f"{name}-mean"].tolist()),
        tuple(held[f"{name}-std"].tolist()),
    )
    model = load_model(spec, data, seed).to(device).eval()
    inputs = torch.from_numpy(held[f"{name}-{half}-x"][: count * batch]).float().div(255).to(device)
    labels = torch.from_numpy(held[f"{name}-{half}-y"][: count * batch]).long().to(device)
    inputs, labels = inputs.reshape(count, batch, 3, 32, 32), labels.reshape(count, batch)
    made = trial_gradients(working_model(model, "eval"), inputs, labels, differentiable=False)
    return Victims(model, data, inputs, labels, {n: g.detach() for n, g in made.items()})
