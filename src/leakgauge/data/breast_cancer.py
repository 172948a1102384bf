"""Breast Cancer Wisconsin: a small medical table, 30 measurements, benign or malignant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from leakgauge.data._dataset import Dataset, DataSource, check_split
from leakgauge.data._scaling import min_max
from leakgauge.types import DataSpec

SPEC = DataSpec("breast-cancer", (30,), 2, "tabular")
TRAIN_SHARE = 0.8


def read(root: Path | None, split: str) -> Dataset:  # noqa: ARG001
    from sklearn.datasets import load_breast_cancer  # here, because importing scikit-learn takes a second

    check_split(split)
    bunch = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(bunch.target))  # the file is not in random order
    train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
    rows = train if split == "train" else test
    inputs = min_max(bunch.data[rows], public=bunch.data[train])  # (M, 30)
    return Dataset(SPEC, torch.from_numpy(inputs), torch.from_numpy(bunch.target[rows].astype(np.int64)))


BREAST_CANCER = DataSource(
    "breast-cancer",
    "tumour measurements, 30 features, benign or malignant; inside scikit-learn",
    "Street, Wolberg and Mangasarian 1993, UCI Breast Cancer Wisconsin (diagnostic)",
    embedded=True,
    read=read,
    samples=(455, 114),
)
