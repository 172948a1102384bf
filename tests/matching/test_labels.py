"""The label rule on its own: which entry is negative, with and without a bias."""

import torch

from leakgauge.matching.labels import single_label

WEIGHT = torch.tensor([[[0.2, 0.1], [-0.5, -0.3], [0.3, 0.2]], [[-0.4, -0.1], [0.1, 0.0], [0.3, 0.1]]])  # (T, C, d)
BIAS = torch.tensor([[0.3, 0.3, -0.6], [0.2, -0.4, 0.2]])  # disagrees with the rows on purpose


def test_the_bias_is_preferred_and_the_rows_can_be_asked_for():
    gradient = {"fc.weight": WEIGHT, "fc.bias": BIAS}
    assert single_label(gradient, "fc").tolist() == [2, 1]
    assert single_label(gradient, "fc", "bias").tolist() == [2, 1]
    assert single_label(gradient, "fc", "row-sum").tolist() == [1, 0]


def test_without_a_bias_the_rows_decide():
    assert single_label({"fc.weight": WEIGHT}, "fc").tolist() == [1, 0]
