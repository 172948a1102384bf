"""Clients lie where they should, and a seed gives the same samples."""

import pytest
import torch

from leakgauge.lab.two_gaussians.cases import CASES, SPEC


@pytest.mark.parametrize("name", CASES)
def test_every_client_has_both_classes_in_the_unit_square(name):
    data, clients = CASES[name].draw("train", 60, seed=0)
    assert data.spec == SPEC
    assert [len(c) for c in clients] == [60] * len(CASES[name].clients)
    for indices in clients:
        assert data.labels[indices].bincount().tolist() == [30, 30]
    again, _ = CASES[name].draw("train", 60, seed=0)
    other, _ = CASES[name].draw("test", 60, seed=0)
    assert torch.equal(again.inputs, data.inputs)
    assert not torch.equal(other.inputs, data.inputs)


def test_classes_lie_in_their_direction():
    data, (first, second) = CASES["alike"].draw("train", 2000, seed=1)
    for indices, axis in ((first, 0), (second, 1)):
        inputs, labels = data.take(indices)
        gap = inputs[labels == 1].mean(0) - inputs[labels == 0].mean(0)
        assert abs(float(gap[axis]) - 0.3) < 0.02
        assert abs(float(gap[1 - axis])) < 0.02
