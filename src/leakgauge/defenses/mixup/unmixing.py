"""The samples behind mixtures: samples and their weight are searched for, and their mixtures are compared.

A client that trains on mixtures w x_i + (1 - w) x_j of its samples, each once the first and once the second, leaves the
sum of the labels as it was. So they are read off the last layer as ever, and only the weight w is unknown, and who was
mixed with whom. Two and three samples can be paired in one way, because 1 - w instead of w turns the pairs round; for
more the order of the labels is taken, which is a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.matching.labels import inferred_labels
from leakgauge.matching.problem import Matching

_ABSENT = 1e-12  # probability of a label that a mixture does not have
_FIRST = 1.1  # the search begins at weights of about 3/4 and 1/4: at 1/2 two samples cannot be told apart


def with_unmixing(problem: Matching) -> Matching:
    """The same problem as a search for samples and their weight; one sample was mixed with nothing."""
    if problem.shape[0] == 1:
        return problem
    labels = inferred_labels(problem.observation) if problem.labels is None else problem.labels
    mixing = Mixing(problem.replace(labels=labels), labels)
    opening = None if problem.opening is None else mixing.opening
    return problem.replace(labels=None, painter=mixing, finish=mixing.samples, opening=opening)


@dataclass(frozen=True)
class Mixing:
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
        soft = _mixed(hard, weight)
        return _mixed(inputs, weight), (soft + _ABSENT).log()

    def samples(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """What stands behind the mixtures: samples (T, N, *shape) and labels (T, N)."""
        reported = self.plain.split if self.plain.finish is None else self.plain.finish
        return reported(z[:, :-1])[0], self.labels

    def opening(self, z: Tensor, attempt: int) -> Tensor:
        """The start of an attempt at samples that another defense changed before they were mixed."""
        return z if self.plain.opening is None else self.plain.opening(z, attempt)


def _mixed(tensor: Tensor, weight: Tensor) -> Tensor:
    """Every row of (A, N, ...) with its neighbour."""
    own = weight.view(-1, *[1] * (tensor.dim() - 1))
    return own * tensor + (1 - own) * tensor.roll(-1, 1)
