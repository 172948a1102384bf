"""Quantisation: every entry becomes one of 2^bits evenly spaced levels between its tensor's least and largest entry.

Konecny et al., "Federated Learning: Strategies for Improving Communication Efficiency", 2016, section 4. With
`rounding="stochastic"` an entry goes to one of its two neighbouring levels at random, such that its mean is the entry
itself: the estimate is unbiased. `rounding="nearest"` is closer each time, and biased.

How to beat it: least and largest entry are levels themselves, so the update shows the whole grid. Each level gives an
interval that held the entry, half a step to either side. The informed attacker asks only that its gradient lies in all
the intervals, and smoothness decides the rest. Random rounding is noise of mean zero and known size: there each tensor
is compared in units of its step. The first-layer ratio is fitted over all rows, which averages the rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.client.sums import mean_of_rounds
from leakgauge.defenses._families import PerTensor, compressed
from leakgauge.engine.randomness import uniform
from leakgauge.matching.compression import Compared, Compression, Named, beside
from leakgauge.matching.problem import Likely, Matching
from leakgauge.settings import setting
from leakgauge.types import Fact, Observation, SharedUpdate

_SMOOTHNESS = 1e-4  # weight of total variation; ten times more costs half a dB, a tenth of it 3 dB


@dataclass(frozen=True)
class Quantize(PerTensor):
    """Example: `--defense quantize:bits=2,rounding=stochastic`"""

    name: ClassVar[str] = "quantize"
    summary: ClassVar[str] = "round every entry to one of a few levels"
    paper: ClassVar[str] = "Konecny et al. 2016; Yue et al. 2023"

    bits: int = setting(4, "bits per entry, for 2^bits levels, 1 to 16", low=1, high=16)
    rounding: str = setting(
        "nearest", "to the nearest level, or at random such that the mean is right", choices=("nearest", "stochastic")
    )

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        rows = tensor.reshape(len(tensor), -1).double()  # in single precision 16 bits of levels are lost to rounding
        low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
        step = (high - low) / (2**self.bits - 1)
        place = torch.where(step > 0, (rows - low) / step, torch.zeros_like(rows))
        if self.rounding == "nearest":
            level = place.round()
        else:
            level = (place + uniform(seeds, f"quantize/{name}", rows.shape[1:]).to(rows)).floor()
        level = level.clamp(0, 2**self.bits - 1)
        return torch.where(level == 2**self.bits - 1, high, low + level * step).to(tensor).view_as(tensor)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        levels = Levels(self.bits, self.rounding)
        if self.rounding == "nearest":
            return compressed(problem, levels, _SMOOTHNESS)
        # With few bits smoothness is weighed against the noise; with many, where distances in units of the step are
        # large, there is enough of it to guide the search.
        beside_squares, beside_cosine = max(0.3, 0.3 * 4.0 ** (self.bits - 4)), max(1e-3, 0.03 * 4.0 ** (2 - self.bits))
        found = compressed(problem, levels, beside_squares, beside_cosine)
        draws = observation.fact(Fact.LOCAL_TRAINING).seen * problem.clients
        if not isinstance(found, Likely) or found.variation is None:
            return found
        return found.replace(variation=found.variation / draws)  # the mean of several draws: less noise

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        """The mean, whose least and largest entries are still the grid's; the nearest level is the same every time."""
        return mean_of_rounds(updates) if self.rounding == "stochastic" else updates[0]

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        """The levels, and both ends of each tensor's range."""
        return sum(-(-self.bits * shape.numel() // 8) + 2 * number_bytes for shape in tensors.values())


@dataclass(frozen=True)
class Levels(Compression):
    """2^bits evenly spaced levels from a tensor's least to its largest entry.

    Both ends are levels, so the grid is visible in the update. Rounded to the nearest, an entry lay within half a step
    of its level and never outside the ends: that cell is all there is to know. Random rounding says more than its cell,
    which is two steps wide: it is noise of mean zero, as large as the step. Entries are then compared in units of it
    (1 dB better than the cell at 2 bits).
    """

    bits: int
    rounding: str

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:  # noqa: ARG002
        if self.rounding == "stochastic":
            units = {name: torch.where((step := self._step(t)) > 0, step, 1.0) for name, t in observed.items()}
            theirs = {name: t / units[name] for name, t in observed.items()}
            return lambda gradients: ({name: gradients[name] / unit for name, unit in units.items()}, theirs)
        cells = {name: self.cell(t) for name, t in observed.items()}

        def compared(gradients: Named) -> Compared:
            mine = {name: gradients[name] for name in cells}
            return mine, {name: torch.clamp(mine[name], *cell) for name, cell in cells.items()}

        return compared

    def cell(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper end of what each entry (A, *parameter) may have been before it went to the nearest level."""
        rows, reach = tensor.flatten(1), self._step(tensor) / 2
        low, high = (beside(end, tensor) for end in (rows.amin(1), rows.amax(1)))
        return torch.maximum(tensor - reach, low), torch.minimum(tensor + reach, high)

    def _step(self, tensor: Tensor) -> Tensor:
        """Between two levels: (A, 1, ...)."""
        rows = tensor.flatten(1)
        return beside((rows.amax(1) - rows.amin(1)) / (2**self.bits - 1), tensor)
