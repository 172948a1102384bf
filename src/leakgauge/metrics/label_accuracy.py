"""How many of a batch's labels were found, in any order: |multiset intersection| / N."""

from __future__ import annotations

import torch
from torch import Tensor


def label_accuracy(truth: Tensor, guess: Tensor) -> Tensor:
    """(T, N) true and (T, M) guessed labels -> (T,), each in [0, 1].

    A label that occurs twice must be guessed twice. Spare guesses (M > N) are not held against the attack.
    """
    both = torch.cat([truth, guess.to(truth.device)], dim=1)  # (T, N + M)
    classes, index = torch.unique(both, return_inverse=True)
    true, guessed = (_counts(part, len(classes)) for part in index.split([truth.shape[1], guess.shape[1]], dim=1))
    return torch.minimum(true, guessed).sum(1).float() / max(truth.shape[1], 1)


def _counts(index: Tensor, classes: int) -> Tensor:
    """(T, N) class indices -> (T, classes) occurrences."""
    return index.new_zeros(index.shape[0], classes).scatter_add(1, index, torch.ones_like(index))
