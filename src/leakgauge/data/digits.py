"""Handwritten digits, 8 × 8 grey: the smallest images there are, for quick runs and tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from leakgauge.data._dataset import Dataset, DataSource, check_split
from leakgauge.types import DataSpec

SPEC = DataSpec("digits", (1, 8, 8), 10, "image", mean=(0.3057,), std=(0.3756,))
TEST_FROM = 1347  # the last quarter is private


def read(root: Path | None, split: str) -> Dataset:  # noqa: ARG001
    """1347 public and 450 private digits. The original has 17 grey levels, 0 to 16."""
    from sklearn.datasets import load_digits  # here, because importing scikit-learn takes a second

    check_split(split)
    bunch = load_digits()
    part = slice(TEST_FROM) if split == "train" else slice(TEST_FROM, None)
    images = (bunch.images[part] / 16).astype(np.float32)[:, None]  # (M, 1, 8, 8)
    return Dataset(SPEC, torch.from_numpy(images), torch.from_numpy(bunch.target[part].astype(np.int64)))


DIGITS = DataSource(
    "digits",
    "handwritten digits, 8x8 grey, 10 classes; inside scikit-learn",
    "Alpaydin and Kaynak 1998, UCI optical recognition of handwritten digits",
    embedded=True,
    read=read,
    samples=(1347, 450),
)
