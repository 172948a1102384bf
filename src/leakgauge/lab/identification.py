"""A classifier that names the person on a recovered picture.

Small enough to be trained on a laptop in a few minutes: six convolutions on 32 x 32 pixels. It is trained on the train
split alone, and victims come from the test split, so it has never seen a victim's picture, only others of the same
person. Brightness and contrast are taken out of each picture first, because many updates hide them; a little noise in
training teaches it to read recoveries that are not clean.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.data import Dataset
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput
from leakgauge.models.layers import activation, named, seeded
from leakgauge.types import DataSpec

SIDE = 32  # pixels that every picture is brought to
WIDTH = 24  # channels of the first convolution
BATCH = 64
STEPS = 900  # about 75 passes over 750 faces
_RATE, _DECAY, _SMOOTHING = 2e-3, 1e-2, 0.1  # of AdamW, and of the labels
_TURN, _ZOOM, _SHIFT, _NOISE = 0.15, 0.15, 0.15, 0.1  # largest changes of a training picture
_CHUNK = 256


class Standardize(nn.Module):
    """Scales each picture to 32 x 32 pixels, mean 0 and deviation 1."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (SIDE, SIDE):
            x = F.interpolate(x, (SIDE, SIDE), mode="bilinear", antialias=True)
        middle, spread = x.mean((1, 2, 3), keepdim=True), x.std((1, 2, 3), keepdim=True)
        return (x - middle) / (spread + 1e-3)  # a blank picture stays blank


@dataclass(frozen=True, eq=False)
class Identifier:
    """A trained classifier, and how it was trained."""

    network: nn.Module
    samples: int  # pictures it was trained on
    steps: int
    seed: int
    seconds: float

    def scores(self, pictures: Tensor) -> Tensor:
        """(R, C, H, W) in [0, 1] -> (R, people) probabilities, the mean of a picture and its mirror image."""
        like = next(self.network.parameters())
        with torch.no_grad():
            parts = [
                (self.network(part).softmax(1) + self.network(part.flip(-1)).softmax(1)).cpu() / 2
                for part in torch.split(pictures.to(like), _CHUNK)
            ]
        return torch.cat(parts)


def train_identifier(samples: Dataset, seed: int, device: torch.device, steps: int = STEPS) -> Identifier:
    """Train on all of `samples`, whose labels are the people; the same seed gives the same classifier."""
    if samples.spec.kind != "image":
        raise BadInput("data to identify", allowed="pictures", got=f"the table {samples.spec.name!r}", do="use faces")
    check_steps(steps)
    began = time.perf_counter()
    with seeded(seed):
        network = _network(samples.spec).to(device).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=steps)
    for number in range(steps):
        source = generator(seed, f"identification/{number}")
        inputs, labels = samples.take(torch.randint(len(samples), (BATCH,), generator=source))
        varied = _varied(inputs, source).to(device)
        optimiser.zero_grad()
        loss = F.cross_entropy(network(varied), labels.to(device), label_smoothing=_SMOOTHING)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return Identifier(network.eval(), len(samples), steps, seed, time.perf_counter() - began)


def check_steps(steps: int) -> None:
    if steps < 1:
        raise BadInput("steps", allowed="at least 1", got=steps, do="choose a value in that range")


def _network(data: DataSpec) -> nn.Sequential:
    """3 x [2 x (conv k3, BatchNorm, ReLU), maxpool2], then one dense layer."""
    layers: list[tuple[str, nn.Module]] = [("standardize", Standardize())]
    channels = data.shape[0]
    for block, out in enumerate((WIDTH, 2 * WIDTH, 4 * WIDTH), start=1):
        for half in ("a", "b"):
            layers += [
                (f"conv{block}{half}", nn.Conv2d(channels, out, 3, padding=1, bias=False)),
                (f"bn{block}{half}", nn.BatchNorm2d(out)),
                (f"act{block}{half}", activation("relu")),
            ]
            channels = out
        layers.append((f"pool{block}", nn.MaxPool2d(2)))
    features = channels * (SIDE // 8) ** 2
    return named(*layers, ("flatten", nn.Flatten()), ("fc", nn.Linear(features, data.classes)))


def _varied(pictures: Tensor, source: torch.Generator) -> Tensor:
    """(B, C, H, W) mirrored, turned (radians), zoomed, shifted (in half sides) and noisy, each by its own draw."""
    count = len(pictures)

    def between(most: float, *shape: int) -> Tensor:
        return most * (2 * torch.rand(count, *shape, generator=source) - 1)

    turn, zoom = between(_TURN), 1 + between(_ZOOM)
    mirror = torch.where(torch.rand(count, generator=source) < 0.5, -1.0, 1.0)
    rows = [mirror * zoom * turn.cos(), -zoom * turn.sin(), mirror * zoom * turn.sin(), zoom * turn.cos()]
    matrix = torch.stack(rows, 1).reshape(count, 2, 2)
    grid = F.affine_grid(torch.cat([matrix, between(_SHIFT, 2, 1)], 2), list(pictures.shape), align_corners=False)
    moved = F.grid_sample(pictures, grid, padding_mode="reflection", align_corners=False)
    noise = _NOISE * torch.rand(count, 1, 1, 1, generator=source) * torch.randn(pictures.shape, generator=source)
    return moved + noise
