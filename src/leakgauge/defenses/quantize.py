"""Quantisation: every entry becomes one of 2^bits evenly spaced levels between its tensor's least and largest entry.

Konecny et al., "Federated Learning: Strategies for Improving Communication Efficiency", 2016, section 4. With
`rounding="stochastic"` an entry goes to one of its two neighbouring levels, to the nearer one more often, such that
its mean is the entry itself: the estimate is unbiased. `rounding="nearest"` is closer each time, and biased.

How to beat it: least and largest entry are levels themselves, so the whole grid stands in the update. Each level tells
an interval that held the entry, half a step to either side. The informed attacker asks only that its gradient lies in
all the intervals, instead of at their middles, and lets smoothness decide the rest. Random rounding is noise of mean
zero and known size: there each tensor is compared in units of its step. The first-layer ratio is fitted over all rows,
which averages the rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.client.sums import mean_of_rounds
from leakgauge.defenses._compressing import knows_compression
from leakgauge.engine.randomness import uniform
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Defense, SharedUpdate, Step

_SMOOTHNESS = 1e-4  # weight of total variation; ten times more costs half a dB, a tenth of it 3 dB


@dataclass(frozen=True)
class Quantize(Defense):
    """Example: `--defense quantize:bits=2,rounding=stochastic`"""

    name: ClassVar[str] = "quantize"
    summary: ClassVar[str] = "round every entry to one of a few levels"
    paper: ClassVar[str] = "Konecny et al. 2016; Yue et al. 2023"

    bits: int = setting(4, "bits per entry, for 2^bits levels, 1 to 16", low=1, high=16)
    rounding: str = setting(
        "nearest", "to the nearest level, or at random such that the mean is right", choices=("nearest", "stochastic")
    )

    def wrap(self, step: Step) -> Step:
        def rounded(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            return step(model, batch, seeds).map(lambda name, t: self._message(name, t, seeds))

        return rounded

    def _message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        """What is sent of one tensor (T, *parameter)."""
        rows = tensor.reshape(len(tensor), -1).double()  # in single precision 16 bits of levels are lost to rounding
        low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
        step = (high - low) / (2**self.bits - 1)
        place = torch.where(step > 0, (rows - low) / step, torch.zeros_like(rows))
        if self.rounding == "nearest":
            level = place.round()
        else:
            chance = uniform(seeds, f"quantize/{name}", rows.shape[1:]).to(rows)
            level = (place + chance).floor()
        level = level.clamp(0, 2**self.bits - 1)
        return torch.where(level == 2**self.bits - 1, high, low + level * step).to(tensor).view_as(tensor)

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:
        rule = f"quantize/bits={self.bits}/rounding={self.rounding}"
        if self.rounding == "nearest":
            return knows_compression(attack, rule, _SMOOTHNESS)
        # With few bits smoothness is weighed against the noise; with many, where distances in units of the step are
        # large, there is enough of it to guide the search.
        return knows_compression(
            attack, rule, max(0.3, 0.3 * 4.0 ** (self.bits - 4)), max(1e-3, 0.03 * 4.0 ** (2 - self.bits))
        )

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        """The mean, whose least and largest entries are still the grid's; the nearest level is the same every time."""
        return mean_of_rounds(updates) if self.rounding == "stochastic" else updates[0]

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        """The levels, and both ends of each tensor's range."""
        return sum(-(-self.bits * shape.numel() // 8) + 2 * number_bytes for shape in tensors.values())
