"""Cells are right by category, or within a fiftieth of their range."""

import torch

from leakgauge.metrics.cells import CELLS
from leakgauge.metrics.criterion import criterion_of
from leakgauge.types import CATEGORIES, DataSpec, Part

DATA = DataSpec(
    "t", (2 + 6,), 2, "tabular", parts=(Part("numbers", (2,), low=0, high=50), Part("words", (2,), CATEGORIES, 3))
)


def test_each_kind_of_cell_counts_once():
    numbers, words = torch.tensor([[10.0, 20.0]]), torch.tensor([[0, 2]])
    truth = torch.cat((DATA.parts[0].encode(numbers), DATA.parts[1].encode(words)), 1)
    assert float(CELLS(truth, truth, DATA)) == 1.0
    other = truth.clone()
    other[0, 0] += 0.5 / 50  # half a unit of fifty
    other[0, 1] += 2 / 50
    assert float(CELLS(truth, other, DATA)) == 0.75
    other[0, 2:5] = torch.tensor([0.3, 0.4, 0.3])  # another category is the most likely one
    assert float(CELLS(truth, other, DATA)) == 0.5


def test_it_is_the_criterion_where_there_are_categories():
    assert str(criterion_of(DATA)) == "cells>=0.9"
    assert not CELLS.fits(DataSpec("t", (4,), 2, "tabular"))
