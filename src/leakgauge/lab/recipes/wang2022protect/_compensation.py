"""How far the server gets with taking the noise out again, on a signal of low rank where the answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.audit.run import Watch
from leakgauge.defenses.sensitivity.compensation import band, compensated, eigen, layout, mean_variance
from leakgauge.defenses.sensitivity.slicing import reservoir
from leakgauge.engine.randomness import normal
from leakgauge.lab.reproduce.recipe import Figures, Measurement

_APART = 100_000  # between the seeds of clients


@dataclass(frozen=True, kw_only=True)
class Compensation(Measurement):
    """The mean of clients that hold one signal and noise a few of their slices, before and after compensation."""

    unit: ClassVar[str] = "draws"

    draws: int = 20
    paper_variance: bool = False  # too large by the square of the number of clients
    keep_below: bool = False  # what lies below the band is kept too, as in the procedure of the text
    entries: int = 15_826  # lenet-dlg on CIFAR-10
    rank: int = 3
    scale: float = 1.7e-4  # of the signal's entries; the released code's noise has 5e-4
    clients: int = 10
    slices: int = 10
    noised: int = 5
    std: float = 5e-4
    q: float = 6.0

    @property
    def title(self) -> str:
        variance = "the paper's variance" if self.paper_variance else "the mean's variance"
        kept = ", what is below the band kept" if self.keep_below else ""
        return f"compensation with {variance}{kept}, Q = {self.q:g}: {self.draws} draws, seed {self.seed}"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:  # noqa: ARG002
        signal = self._signal()  # (T, P), T draws
        seen = signal + self._mean_noise()
        weights = [1 / self.clients] * self.clients
        rule, keep = ("printed" if self.paper_variance else "weights"), ("outside" if self.keep_below else "above")
        pad = not (self.paper_variance and self.keep_below)  # the released code adds no zeros
        variance = mean_variance(self.std, self.noised / self.slices, weights, rule)
        left = compensated(seen, variance, self.q, keep, pad)
        matrix, values, _ = eigen(seen, self.q, pad)
        low, high = band(variance, matrix.shape[1] / matrix.shape[2])
        kept = (values > high) | (values < low) if self.keep_below else values > high
        return {
            "error_before": _error(seen, signal),
            "error_after": _error(left, signal),
            "directions_kept": tuple(kept.sum(1).double().tolist()),
        }

    @property
    def _seeds(self) -> list[int]:
        return [self.seed + draw for draw in range(self.draws)]

    def _signal(self) -> Tensor:
        v, w = layout(self.entries, self.q)
        rows = normal(self._seeds, "compensation/rows", (v, self.rank)).double()
        columns = normal(self._seeds, "compensation/columns", (self.rank, w)).double()
        flat = (rows @ columns).flatten(1)[:, : self.entries]
        return flat * self.scale / flat.std(1, keepdim=True)

    def _mean_noise(self) -> Tensor:
        slice_of = torch.arange(self.entries) * self.slices // self.entries
        total = torch.zeros(self.draws, self.entries, dtype=torch.float64)
        for client in range(self.clients):
            seeds = [seed + _APART * (client + 1) for seed in self._seeds]
            chosen = torch.zeros(self.draws, self.slices, dtype=torch.bool)
            chosen.scatter_(1, reservoir(seeds, self.slices, self.noised), True)
            noise = normal(seeds, "compensation/noise", (self.entries,)).double()
            total += chosen[:, slice_of] * noise * self.std / self.clients
        return total


def _error(found: Tensor, truth: Tensor) -> tuple[float, ...]:
    return tuple(((found - truth).norm(dim=1) / truth.norm(dim=1)).tolist())
