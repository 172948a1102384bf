"""Mixup: the client trains on mixtures of two of its samples each, and of their labels, instead of on the samples.

Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018; as a defense see Huang et al. 2020 (InstaHide) and
Carlini et al. 2021, who broke it. Sample i becomes w x_i + (1 - w) x_j, its label w y_i + (1 - w) y_j, with one
w ~ Beta(alpha, alpha) per update.

Where we depart. The partners are those of a random shift of the batch, so that no sample is left alone; published code
takes any permutation. Mixtures are made once per update, and all local steps train on them. A client with one sample
has no partner: nothing changes, and the report says that the defense was without effect.

How to beat it: every sample is in two mixtures, so nothing is lost. The informed attacker searches for the samples and
for w, mixes them as the client does and compares the mixtures' gradients. The sum of the labels is that of the samples,
so they are read off the last layer as ever. Two samples at w near 1/2 cannot be told apart. Two and three samples can
be paired in one way, because 1 - w instead of w turns the pairs round; for more the order of the labels is taken, which
is a guess: a good result there is one against a weak attacker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.defenses._families import SolvesPeeled
from leakgauge.engine.gradients import working_model
from leakgauge.engine.randomness import generator
from leakgauge.matching.labels import inferred_labels
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Batch, Observation, SharedUpdate, Step

# Of the squared norm of the update: to first order other weights fit as well, and only what is left tells them apart.
_EXACT = 1e-10
_ABSENT = 1e-12  # probability of a label that a mixture does not have
_FIRST = 1.1  # the search begins at weights of about 3/4 and 1/4: at 1/2 two samples cannot be told apart


@dataclass(frozen=True)
class Mixup(SolvesPeeled):
    """Example: `--defense mixup:alpha=1`"""

    name: ClassVar[str] = "mixup"
    summary: ClassVar[str] = "train on mixtures of two samples and of their labels"
    paper: ClassVar[str] = "Zhang et al. 2018 (mixup); Carlini et al. 2021 (its break)"
    strength: ClassVar[str] = "alpha"

    alpha: float = setting(1.0, "the share of a sample in its mixture is Beta(alpha, alpha); 0 mixes nothing", low=0)

    def wrap(self, step: Step) -> Step:
        def on_mixtures(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            samples = batch.inputs.shape[1]
            if samples == 1:
                return step(model, batch, seeds)
            with torch.no_grad():
                classes = working_model(model, "eval")(batch.inputs[0, :1]).shape[-1]
            return step(model, mixed(batch, *draw(seeds, samples, self.alpha), classes), seeds)

        return step if self.idle else on_mixtures

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return with_unmixing(problem).replace(exact=min(problem.exact, _EXACT))


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
    rows = torch.arange(batch.trials, device=hard.device)[:, None]
    places = partners.to(hard.device)
    return Batch(*(_mixture(t, t[rows, places], weights) for t in (batch.inputs, hard)))


def _mixture(own: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    share = weight.to(own).view(-1, *[1] * (own.dim() - 1))
    return share * own + (1 - share) * other


def with_unmixing(problem: Matching) -> Matching:
    """The same problem as a search for samples and their weight; one sample was mixed with nothing."""
    if problem.shape[0] == 1:
        return problem
    labels = inferred_labels(problem.observation) if problem.labels is None else problem.labels
    mixtures = Mixtures(problem.replace(labels=labels), labels)
    opening = None if problem.opening is None else mixtures.opening
    return problem.replace(labels=None, painter=mixtures, finish=mixtures.samples, opening=opening)


@dataclass(frozen=True)
class Mixtures:
    """Makes mixtures and their soft labels from z = (samples, one number for the weight)."""

    plain: Matching  # the problem without mixtures, its labels known
    labels: Tensor  # (T, N)

    @property
    def width(self) -> int:
        return self.plain.visible + 1

    def __call__(self, z: Tensor, trials: Tensor | None) -> tuple[Tensor, Tensor | None]:
        inputs, _ = self.plain.split(z[:, :-1], trials)
        labels = self.labels if trials is None else self.labels[trials]
        weight = torch.sigmoid(z[:, -1] + _FIRST)
        hard = nn.functional.one_hot(labels, self.plain.classes).to(z)  # (A, N, C)
        pictures, soft = (_mixture(t, t.roll(-1, 1), weight) for t in (inputs, hard))
        return pictures, (soft + _ABSENT).log()

    def samples(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """What stands behind the mixtures: samples (T, N, *shape) and labels (T, N)."""
        reported = self.plain.split if self.plain.finish is None else self.plain.finish
        return reported(z[:, :-1])[0], self.labels

    def opening(self, z: Tensor, attempt: int) -> Tensor:
        """The start of an attempt at samples that another defense changed before they were mixed."""
        return z if self.plain.opening is None else self.plain.opening(z, attempt)
