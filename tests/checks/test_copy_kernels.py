"""Filters that are single taps, in every convolution, against what chance gives filters of that size."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from leakgauge.checks import inspect_model, tampered


def chain(*channels: int, kernel: int = 3, groups: int = 1) -> nn.Sequential:
    torch.manual_seed(0)
    pairs = itertools.pairwise(channels)
    return nn.Sequential(*(nn.Conv2d(a, b, kernel, groups=groups) for a, b in pairs))


def make_copies(conv: nn.Conv2d, used: int, noise: float = 0.0) -> None:
    with torch.no_grad():
        conv.weight[:used] = noise * torch.randn(conv.weight[:used].shape)
        for i in range(used):
            conv.weight[i, i % conv.weight.shape[1], 1, 1] += 1


@pytest.mark.parametrize("noise", [0.0, 1e-3, 1e-2])
def test_copies_in_every_layer_are_found(score, noise):
    model = chain(3, 16, 16, 32)
    assert set(score("copy-kernels", model).values()) == {0.0}
    for conv, used in zip(model, (6, 6, 24), strict=True):
        make_copies(conv, used, noise)
    assert min(score("copy-kernels", model).values()) > 0.85
    assert [s.id for s in inspect_model(model) if s.severity == "high"] == ["copy-kernels"] * 3


def test_one_layer_that_filters_is_enough_to_be_left_alone(score):
    model = chain(3, 16, 16, 32)
    nn.init.dirac_(model[0].weight)  # an identity at the stem
    assert score("copy-kernels", model)["0"] > 0.9
    assert not tampered(inspect_model(model))


@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 4), (5, 1)])
def test_small_filters_have_another_baseline(score, kernel, groups):
    """A filter of few weights often has most of its energy in one."""
    for seed in range(20):
        model = chain(4, 12, 12, kernel=kernel, groups=groups)
        torch.manual_seed(seed)
        for conv in model:
            nn.init.uniform_(conv.weight, -0.5, 0.5)
        assert inspect_model(model) == ()


def test_pruned_filters_with_one_weight_left_are_no_copies(pruned):
    for seed in range(20):
        torch.manual_seed(seed)
        assert not tampered(inspect_model(pruned(nn.Sequential(nn.Conv2d(1, 12, 5)), 0.9)))


def test_layers_of_nothing_but_taps_are_copies_all_the_same(score):
    model = chain(3, 3, 3)
    for conv in model:
        make_copies(conv, 3)
    assert set(score("copy-kernels", model).values()) == {1.0}


def test_dead_filters_do_not_count(score):
    model = chain(3, 16, 16)
    with torch.no_grad():
        model[0].weight[:10] = 0
        model[1].weight[:] = 0
    assert score("copy-kernels", model) == {"0": 0.0}
