"""The two sets that come inside scikit-learn: digits, 8 × 8 grey, and Breast Cancer Wisconsin, 30 measurements each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from leakgauge.data._dataset import Dataset, DataSource, min_max
from leakgauge.types import DataSpec

_DIGITS = DataSpec("digits", (1, 8, 8), 10, "image", mean=(0.3057,), std=(0.3756,))
_CANCER = DataSpec("breast-cancer", (30,), 2, "tabular")
_TEST_FROM = 1347  # of the digits, the last quarter is private
_TRAIN_SHARE = 0.8  # of the patients


def _digits(root: Path | None, split: str) -> Dataset:  # noqa: ARG001
    """1347 public and 450 private digits, the smallest images there are. They have 17 grey levels, 0 to 16."""
    from sklearn.datasets import load_digits  # here, because importing scikit-learn takes a second

    bunch = load_digits()
    part = slice(_TEST_FROM) if split == "train" else slice(_TEST_FROM, None)
    images = (bunch.images[part] / 16).astype(np.float32)[:, None]  # (M, 1, 8, 8)
    return Dataset(_DIGITS, torch.from_numpy(images), torch.from_numpy(bunch.target[part].astype(np.int64)))


def _breast_cancer(root: Path | None, split: str) -> Dataset:  # noqa: ARG001
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(bunch.target))  # the file is not in random order
    train, test = np.split(order, [int(_TRAIN_SHARE * len(order))])
    rows = train if split == "train" else test
    inputs = min_max(bunch.data[rows], public=bunch.data[train])  # (M, 30)
    return Dataset(_CANCER, torch.from_numpy(inputs), torch.from_numpy(bunch.target[rows].astype(np.int64)))


DIGITS = DataSource(
    "digits",
    "handwritten digits, 8x8 grey, 10 classes; inside scikit-learn",
    "Alpaydin and Kaynak 1998, UCI optical recognition of handwritten digits",
    read=_digits,
    embedded=True,
    samples=(1347, 450),
)
BREAST_CANCER = DataSource(
    "breast-cancer",
    "tumour measurements, 30 features, benign or malignant; inside scikit-learn",
    "Street, Wolberg and Mangasarian 1993, UCI Breast Cancer Wisconsin (diagnostic)",
    read=_breast_cancer,
    embedded=True,
    samples=(455, 114),
)
