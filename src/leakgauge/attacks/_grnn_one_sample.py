"""GRNN's generator for updates of one sample: a quarter of the numbers, and the same steps.

Its first layer and its label layer then see one vector of noise v, fixed for the whole run. Their weights W enter by
v W alone, whose gradient d reaches W as the outer product of v and d. RMSprop divides every entry by its own root mean
square, so row i moves by sign(v_i) times one and the same vector, and v W by |v|_1 times it. Here u with v W = |v|_1 u
is searched in place of W: by RMSprop it takes exactly those steps. Only the optimiser's epsilon, 1e-8, weighs less.
Under a rule that does not divide so, plain descent for one, it would go elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks._grnn_generator import Generator, unpacked
from leakgauge.engine.per_trial_layers import gated


@dataclass(frozen=True)
class OneSample:
    """The generator `whole`, whose noise is (T, 1, d), seen through u; `z` in a call holds u and all other weights."""

    whole: Generator

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Numbers that are searched, by name, without the trials axis."""
        outputs = {"seed.weight": slice(1, None), "label.weight": slice(0, 1)}
        return {name: shape[outputs.get(name, slice(None))] for name, shape in self.whole.shapes.items()}

    @property
    def width(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def start(self, seeds: Sequence[int], role: str) -> Tensor:
        """(A, D): where the whole generator would start."""
        weights = unpacked(self.whole.start(seeds, role), self.whole.shapes)
        noise = self.whole.noise_of(seeds)[:, 0].to(weights["seed.weight"])
        size = noise.abs().sum(1)
        products = {"seed.weight": "ti,ti...->t...", "label.weight": "ti,toi->to"}
        for name in products.keys() & weights.keys():
            outputs = torch.einsum(products[name], noise, weights[name])
            weights[name] = outputs / size.reshape(-1, *[1] * (outputs.dim() - 1))
        return torch.cat([part.flatten(1) for part in weights.values()], 1)

    def __call__(self, z: Tensor, trials: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """As the whole generator: pictures (A, 1, C, H, W), logits (A, 1, K) or None."""
        weights = unpacked(z, self.shapes)
        noise = self.whole.noise if trials is None else self.whole.noise[trials]
        size = noise.abs().sum((1, 2))
        seed = size[:, None, None, None] * weights["seed.weight"] + weights["seed.bias"][:, :, None, None]
        pictures = self.whole.painted(gated(seed.permute(0, 2, 3, 1)[:, None]), weights)
        if not self.whole.classes:
            return pictures, None
        return pictures, (size[:, None] * weights["label.weight"] + weights["label.bias"])[:, None]
