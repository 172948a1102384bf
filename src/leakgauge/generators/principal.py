"""The generator that needs no training: each label's mean of public samples, and the directions in which they vary.

A sample is the mean of its label plus principal components in units of their standard deviation (Turk and Pentland
1991, eigenfaces). A few hundred public samples are enough, it is there in milliseconds, and its range is easy to think
about; its pictures are soft.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge.generators.fingerprints import fingerprints
from leakgauge.generators.generator import Generator
from leakgauge.types import Batch, DataSpec

COMPONENTS = 48  # at most; fewer samples give fewer


class Principal(nn.Module):
    """Latents (M, D) and labels (M,) -> samples (M, *shape), not held to [0, 1]: a bound would hide slopes."""

    def __init__(self, mean: Tensor, directions: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean)  # (classes, P)
        self.directions = nn.Parameter(directions)  # (D, P), as long as one standard deviation
        self.shape = shape

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        return (self.mean[labels] + latents @ self.directions).reshape(-1, *self.shape)


def principal_generator(public: Batch, data: DataSpec) -> Generator:
    """From the public samples (T = 1) of a threat model; the same samples always give the same generator."""
    samples, labels = public.inputs[0].double().cpu().flatten(1), public.labels[0].cpu()
    overall = samples.mean(0)
    rows = [samples[labels == label] for label in range(data.classes)]
    mean = torch.stack([own.mean(0) if len(own) else overall for own in rows])  # a label nobody has: the mean of all
    centred = samples - mean[labels]
    count = max(1, min(COMPONENTS, len(samples) - 1, samples.shape[1]))
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    sign = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()  # else its choice is the library's
    scaled = directions * sign * sizes[:, None] / max(1, len(samples) - 1) ** 0.5
    net = Principal(mean.float(), scaled[:count].float(), data.shape).eval().requires_grad_(False)
    about = f"{len(samples)} public samples, their principal components"
    return Generator(net, count, data.shape, data.classes, about, fingerprints(public.inputs[0].cpu()))
