"""From updates of known batches to the probability that an unknown batch has a property: a random forest."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from torch import Tensor

LEAST = 5  # samples in a leaf, and to split a node, as published


@dataclass(frozen=True)
class PropertyClassifier:
    """A forest, and the scale of the features it was grown on."""

    mean: NDArray[np.float32]  # (F,)
    spread: NDArray[np.float32]  # (F,)
    forest: Any
    own_score: float  # AUC on the attacker's own updates, each judged by the trees that were grown without it

    def probability(self, features: Tensor) -> Tensor:
        """(T, F) -> (T,) that the batch behind each row has the property; a row never sees its neighbours."""
        found = self.forest.predict_proba((features.cpu().numpy() - self.mean) / self.spread)
        return torch.from_numpy(found[:, 1].copy())


def fit(features: Tensor, has: Tensor, trees: int, seed: int) -> PropertyClassifier:
    """Grown on the attacker's own updates: features (B, F), and has (B,) whether the batch had the property."""
    table = features.cpu().numpy()
    mean, spread = table.mean(0), table.std(0)
    spread[spread == 0] = 1  # a number that never changes says nothing
    forest = RandomForestClassifier(
        n_estimators=trees, min_samples_leaf=LEAST, min_samples_split=LEAST, random_state=seed % 2**32, oob_score=True
    )
    labels = has.cpu().numpy().astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # with few trees some updates are in all of them: see below
        forest.fit((table - mean) / spread, labels)
    unseen = np.nan_to_num(forest.oob_decision_function_[:, 1], nan=0.5)
    return PropertyClassifier(mean, spread, forest, float(roc_auc_score(labels, unseen)))
