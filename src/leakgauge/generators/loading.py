"""Any generator a user may name: `public`, made on the spot from public samples, `dcgan-faces`, or a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.errors import NotApplicable
from leakgauge.generators import dcgan
from leakgauge.generators.generator import Generator, fingerprints, fitted
from leakgauge.generators.saving import read_generator
from leakgauge.types import Attack, Batch, DataSpec

PUBLIC = "public"
_COMPONENTS = 48  # of the public generator, at most; fewer samples give fewer


def load_generator(spec: str, data: DataSpec, public: Batch | None = None) -> Generator:
    """The named generator for this kind of data; refused in one line if it makes something else."""
    if spec != PUBLIC:
        return fitted(_read(spec), data, f"generator {spec!r}")
    if public is None:
        do = f"give a file: leakgauge train generator --data {data.name}"
        raise NotApplicable(f"generator 'public' is made from public samples, and there are none; {do}")
    return principal_generator(public, data)


def named_by(attack: Attack) -> str | None:
    """The generator that an attack's settings name; None for attacks that draw from none."""
    spec = getattr(attack, "generator", None)
    return spec if attack.decoy and isinstance(spec, str) else None


def generator_content(spec: str) -> str:
    """A hash of the file behind the name, so that a new file makes new results; empty where there is no file."""
    path = Path(spec)
    return hashlib.sha256(path.read_bytes()).hexdigest() if spec != PUBLIC and path.is_file() else ""


def doubts_about(spec: str, victims: Tensor) -> tuple[str, ...]:
    """Flags that this generator raises for these private samples (M, *shape)."""
    if spec == PUBLIC:
        return ()  # the threat model keeps public samples and victims apart
    seen = _read(spec).seen
    if seen is None:
        return ("generator-data-unknown",)
    return ("generator-saw-victims",) if set(seen.tolist()) & set(fingerprints(victims).tolist()) else ()


def _read(spec: str) -> Generator:
    return dcgan.read_faces() if spec == dcgan.NAME else read_generator(spec)


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
    """The generator that needs no training, from the public samples (T = 1) of a threat model.

    A sample is the mean of its label plus principal components of the public samples in units of their standard
    deviation (Turk and Pentland 1991, eigenfaces). A few hundred samples are enough; its pictures are soft. The same
    samples always give the same generator.
    """
    samples, labels = public.inputs[0].double().cpu().flatten(1), public.labels[0].cpu()
    overall = samples.mean(0)
    rows = [samples[labels == label] for label in range(data.classes)]
    mean = torch.stack([own.mean(0) if len(own) else overall for own in rows])  # a label nobody has: the mean of all
    count = max(1, min(_COMPONENTS, len(samples) - 1, samples.shape[1]))
    _, sizes, directions = torch.linalg.svd(samples - mean[labels], full_matrices=False)
    sign = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()  # else it depends on the library
    scaled = directions * sign * sizes[:, None] / max(1, len(samples) - 1) ** 0.5
    net = Principal(mean.float(), scaled[:count].float(), data.shape).eval().requires_grad_(False)
    about = f"{len(samples)} public samples, their principal components"
    return Generator(net, count, data.shape, data.classes, about, fingerprints(public.inputs[0].cpu()))
