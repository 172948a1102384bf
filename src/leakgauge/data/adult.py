"""Adult (census income): a table of people; categories one-hot, numbers scaled, two classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.data._dataset import Dataset, DataSource, Download, StandardFile, min_max
from leakgauge.data.files import damaged, require, text_lines
from leakgauge.types import DataSpec

_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
)
_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_LONGEST = 100  # characters of a cell; an array of texts gives each of them the room of the longest
_LABELS = {"<=50K": 0, ">50K": 1}


def read(root: Path | None, split: str) -> Dataset:
    """Each row: the numbers, then one block per category in the order of the columns.

    Ranges and categories come from the public file. "?" (not stated) is a category of its own; a
    category that only the private file has becomes a block of zeros.
    """
    public, public_labels = _rows(require("adult", root, "adult/adult.data"))
    rows, labels = (public, public_labels) if split == "train" else _rows(require("adult", root, "adult/adult.test"))
    blocks = [min_max(_numbers(rows), public=_numbers(public))]
    for at, column in enumerate(_COLUMNS):
        if column not in _NUMBERS:
            categories = np.unique(public[:, at])  # sorted
            blocks.append((rows[:, at, None] == categories).astype(np.float32))
    inputs = torch.from_numpy(np.concatenate(blocks, axis=1))  # (M, features)
    return Dataset(DataSpec("adult", (inputs.shape[1],), 2, "tabular"), inputs, torch.tensor(labels, dtype=torch.int64))


def _rows(path: Path) -> tuple[NDArray[np.str_], list[int]]:
    """Cells (M, 14) as text, and labels. The test file has a line to skip and a dot behind its labels."""
    cells, labels = [], []
    for number, line in enumerate(text_lines(path, "ascii"), start=1):
        if not line.strip() or line.startswith("|"):
            continue
        *row, label = (cell.strip() for cell in line.split(","))
        if len(row) != len(_COLUMNS) or label.rstrip(".") not in _LABELS or max(map(len, row)) > _LONGEST:
            raise damaged(path, f"{len(_COLUMNS)} columns and <=50K or >50K in line {number}", "something else")
        cells.append(row)
        labels.append(_LABELS[label.rstrip(".")])
    if not cells:
        raise damaged(path, "a table of people", "no rows")
    try:  # the message leaves out the value: it is private
        sound = bool(np.isfinite(_numbers(table := np.array(cells))).all())
    except ValueError:
        sound = False
    if not sound:
        raise damaged(path, f"numbers in {', '.join(_NUMBERS)}", "something else")
    return table, labels


def _numbers(rows: NDArray[np.str_]) -> NDArray[np.float64]:
    return rows[:, [_COLUMNS.index(column) for column in _NUMBERS]].astype(np.float64)


_HOST = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_KNOWN = {
    "adult.data": ("sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", 3974305),
    "adult.test": ("sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", 2003153),
}

ADULT = DataSource(
    "adult",
    "census records, 108 features, income above 50K or not",
    "Becker and Kohavi 1996, UCI Adult",
    read=read,
    samples=(32561, 16281),
    files=tuple(StandardFile((f"adult/{file}",), checksum) for file, (checksum, _) in _KNOWN.items()),
    downloads=tuple(Download(_HOST + file, f"adult/{file}", *known) for file, known in _KNOWN.items()),
)
