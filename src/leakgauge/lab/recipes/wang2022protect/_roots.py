"""What the root samples decide: the risk of every tensor, and by it who is in which slice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from leakgauge.audit.run import Watch
from leakgauge.data import Dataset, load
from leakgauge.defenses.sensitivity import Sensitivity
from leakgauge.defenses.sensitivity.slicing import packed, root_samples, swept
from leakgauge.engine.gradients import parameters_of
from leakgauge.engine.jacobian_norms import jacobian_norms
from leakgauge.engine.randomness import generator
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.models import load_model

_REFERENCE = 400  # even samples that a root set is compared with; others than its own
_PROBES = 4


@dataclass(frozen=True, kw_only=True)
class RootSet(Measurement):
    """Slices by `root` real pictures of which a share `bias` has one label, beside those of many even ones."""

    unit: ClassVar[str] = "root samples"
    counted: ClassVar[str] = "root"

    data: str
    root: int
    bias: float = 0.1  # of ten labels: even
    model: str = "lenet-cpl"
    roots: str = "real"  # or made-up or distilled, which take no bias
    packing: str = "balanced"
    slices: int = 10

    @property
    def title(self) -> str:
        samples = f"{self.root} {self.roots} root samples, bias {self.bias:g}, {self.packing}"
        return f"slices of {self.model}, {self.data}: {samples}, seed {self.seed}"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:  # noqa: ARG002
        pictures = load(self.data, "train", data_root)
        model = load_model(self.model, pictures.spec, self.seed, None)
        sizes = {name: p.numel() for name, p in parameters_of(model).items()}
        shares, cuts = [], []
        reference = pictures.take(self._chosen(pictures, _REFERENCE, 0.0, "reference"))
        for inputs, labels in (self._own(model, pictures), reference):
            risk = jacobian_norms(model, inputs, labels, _PROBES, self.seed).mean
            total = sum(risk.values())
            shares.append({name: value / total for name, value in risk.items()})
            cuts.append(self._cut(risk, sizes))
        mine, theirs = shares
        return {
            "risk_apart": (max(abs(mine[n] / theirs[n] - 1) for n in mine),),
            "entries_moved": (float((cuts[0] != cuts[1]).double().mean()),),
        }

    def _own(self, model: nn.Module, pictures: Dataset) -> tuple[Tensor, Tensor]:
        if self.roots == "real":
            return pictures.take(self._chosen(pictures, self.root, self.bias, "own"))
        data = self.data if self.roots == "distilled" else ""
        return root_samples(model, pictures.spec.shape, self.root, self.roots, data)

    def _chosen(self, pictures: Dataset, count: int, bias: float, part: str) -> Tensor:
        """Indices of `count` pictures, a share `bias` of them of the first label; 0: as they come."""
        order = torch.randperm(len(pictures), generator=generator(self.seed, f"roots/{part}"))
        if not bias:
            return order[:count]
        first = order[pictures.labels[order] == 0]
        others = order[pictures.labels[order] != 0]
        biased = round(bias * count)
        return torch.cat((first[:biased], others[: count - biased]))

    def _cut(self, risk: Mapping[str, float], sizes: Mapping[str, int]) -> Tensor:
        """(P,) the slice of every entry."""
        block = math.gcd(*sizes.values())
        blocks = [size // block for size in sizes.values()]
        share = torch.tensor([risk[n] / b for n, b in zip(sizes, blocks, strict=True)], dtype=torch.float64)
        cut = packed if self.packing == "balanced" else swept
        return cut(share, blocks, self.slices).repeat_interleave(block)


@dataclass(frozen=True, kw_only=True)
class NoisedShare(Measurement):
    """How many of the entries `noised` slices hold, at least and at most: equal risk is not equal size."""

    unit: ClassVar[str] = "models"

    data: str
    noised: int
    model: str = "lenet-cpl"
    packing: str = "balanced"
    as_released: bool = False

    @property
    def size(self) -> int:
        return 1

    def resized(self, size: int) -> Self:  # noqa: ARG002
        return self

    @property
    def title(self) -> str:
        return f"sizes of the slices of {self.model}, {self.data}, {self.packing}, seed {self.seed}"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:  # noqa: ARG002
        spec = load(self.data, "train", data_root).spec
        model = load_model(self.model, spec, self.seed, None)
        rule = Sensitivity(packing=self.packing, as_released=self.as_released)
        sizes = rule.cut(model, spec.shape).sizes.double().sort().values
        return {
            "share_least": (float(sizes[: self.noised].sum() / sizes.sum()),),
            "share_most": (float(sizes[-self.noised :].sum() / sizes.sum()),),
        }
