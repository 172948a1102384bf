"""Mixup: the client trains on mixtures of two of its samples each, and of their labels, instead of on the samples.

Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018; as a defense see Huang et al. 2020 (InstaHide) and
Carlini et al. 2021, who broke it. Sample i becomes w x_i + (1 - w) x_j, its label w y_i + (1 - w) y_j, with one
w ~ Beta(alpha, alpha) per update.

Where we depart. The partners are those of a random shift of the batch, so that no sample is left alone; published code
takes any permutation. Mixtures are made once per update, and all local steps train on them. A client with one sample
has no partner: nothing changes, and the report says that the defense was without effect.

How to beat it: every sample is in two mixtures, so nothing is lost. The informed attacker searches for the samples and
for w, mixes them as the client does and compares the mixtures' gradients. The sum of the labels is that of the samples,
so they are read off the last layer as ever. Two samples at w near 1/2 cannot be told apart. Of more than three samples
the attacker does not know who was mixed with whom and guesses: a good result there is one against a weak attacker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.defenses.mixup.unmixing import with_unmixing
from leakgauge.engine.gradients import working_model
from leakgauge.engine.randomness import generator
from leakgauge.matching.first_layer import LEAST_SQUARES, SOLVED, FirstLayer, PeeledLayer
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Batch, Defense, Observation, SharedUpdate, Step

# Of the squared norm of the update: to first order other weights fit as well, and only what is left tells them apart.
_EXACT = 1e-10


@dataclass(frozen=True)
class Mixup(Defense):
    """Example: `--defense mixup:alpha=1`"""

    name: ClassVar[str] = "mixup"
    summary: ClassVar[str] = "train on mixtures of two samples and of their labels"
    paper: ClassVar[str] = "Zhang et al. 2018 (mixup); Carlini et al. 2021 (its break)"

    alpha: float = setting(1.0, "the share of a sample in its mixture is Beta(alpha, alpha); 0 mixes nothing", low=0)

    def wrap(self, step: Step) -> Step:
        if self.alpha == 0:
            return step

        def on_mixtures(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            if batch.inputs.shape[1] == 1:
                return step(model, batch, seeds)
            with torch.no_grad():
                classes = working_model(model, "eval")(batch.inputs[0, :1]).shape[-1]
            return step(model, mixed(batch, *draw(seeds, batch.inputs.shape[1], self.alpha), classes), seeds)

        return on_mixtures

    @property
    def idle(self) -> bool:
        return self.alpha == 0

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return with_unmixing(problem).replace(exact=min(problem.exact, _EXACT))

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return problem.replace(combine=LEAST_SQUARES)  # the only rows that are fitted together

    def informs_peeled(self, problem: PeeledLayer, observation: Observation, way: str) -> PeeledLayer:  # noqa: ARG002
        return problem.replace(coefficients=SOLVED)  # whatever the mixed labels are


def draw(seeds: Sequence[int], samples: int, alpha: float) -> tuple[Tensor, Tensor]:
    """Each trial's weight w (T,) and its partners (T, N): the batch shifted by at least one place."""
    weights, partners = [], []
    for seed in seeds:
        random = np.random.default_rng(generator(seed, "mixup").initial_seed())
        weights.append(random.beta(alpha, alpha))
        partners.append((torch.arange(samples) + int(random.integers(1, samples))) % samples)
    return torch.tensor(weights), torch.stack(partners)


def mixed(batch: Batch, weights: Tensor, partners: Tensor, classes: int) -> Batch:
    """The mixtures (T, N, *sample) with soft labels (T, N, C)."""
    hard = nn.functional.one_hot(batch.labels, classes).to(batch.inputs)
    return Batch(*(_mixture(t, weights, partners) for t in (batch.inputs, hard)))


def _mixture(tensor: Tensor, weights: Tensor, partners: Tensor) -> Tensor:
    own = weights.to(tensor).view(-1, *[1] * (tensor.dim() - 1))
    rows = torch.arange(len(tensor), device=tensor.device)[:, None]
    return own * tensor + (1 - own) * tensor[rows, partners.to(tensor.device)]
