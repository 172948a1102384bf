"""Filters that are single taps, huge weights, silent classes and zeros."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from leakgauge.checks import Thresholds, inspect_model, scores, tampered
from leakgauge.checks.inspection import judge, measure


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


def test_is_measured_against_what_inputs_can_add(score):
    model = nn.Sequential(nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([[1.0, -1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
        model[0].bias[:] = torch.tensor([8.0, -1000.0])
    assert score("huge-bias", model)["0"] == pytest.approx(1000)
    with torch.no_grad():
        model[0].bias[1] = 0
    assert score("huge-bias", model)["0"] == pytest.approx(8 / 4)


def test_looks_at_convolutions_and_normalisations_too(score):
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3))
    with torch.no_grad():
        model[1].bias[2] = 500
    found = score("huge-bias", model)
    assert found["0"] < 1
    assert found["1"] == pytest.approx(250)


def test_several_links_far_above_the_rest_are_found(score, dense):
    model = dense(40, 64, 32, 10)
    assert score("huge-links", model)["2"] < 5
    with torch.no_grad():
        model[2].weight[torch.arange(4), torch.arange(4)] = 200 * model[2].weight.std()
    assert score("huge-links", model)["2"] > 100


def test_three_are_not_several(score, dense):
    model = dense(40, 64, 32, 10)
    with torch.no_grad():
        model[2].weight[0, :3] = 100
    assert score("huge-links", model)["2"] < 5


def test_is_the_fourth_largest_over_the_median_wherever_it_stands(score):
    weight = torch.ones(3, 40)
    weight[1, :4] = torch.tensor([9.0, -8.0, 7.0, -6.0])
    found = score("huge-links", {"a.weight": weight, "b.weight": torch.randn(5, 3)})
    assert found["a"] == pytest.approx(6)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_one_class_that_speaks_alone_is_found(score, dense, classes):
    model = dense(40, 32, classes)
    assert score("silent-classes", model)["2"] < 0.5
    with torch.no_grad():
        model[2].weight[:] = 1e-4 * model[2].weight
        model[2].weight[1] = 0.5
    assert score("silent-classes", model)["2"] > 0.99


def test_one_weight_alone_is_found(score, dense):
    model = dense(40, 32, 10)
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].weight[3, 5] = 300
    assert score("silent-classes", model)["2"] == 1


def test_a_last_layer_that_starts_at_zero_is_not_judged(score, dense):
    model = dense(40, 32, 10)
    torch.nn.init.zeros_(model[2].weight)
    assert score("silent-classes", model) == {}


def test_classes_that_pruning_emptied_are_not_judged(score, dense, pruned):
    for seed in range(20):
        found = score("silent-classes", pruned(dense(40, 5, 10, seed=seed), 0.9))
        assert found.get("2", 0) < 0.95


def test_a_last_layer_of_zeros_is_a_caution(dense, score):
    model = dense(20, 16, 5)
    assert score("empty-layer", model) == {"2": 0.0}
    torch.nn.init.zeros_(model[2].weight)
    (said,) = [s for s in inspect_model(model) if s.id == "empty-layer"]
    assert said.severity == "caution"
    assert not tampered(inspect_model(model))


def test_one_that_had_weights_in_the_last_round_is_grave(dense):
    before, now = dense(20, 16, 5), dense(20, 16, 5)
    torch.nn.init.zeros_(now[2].weight)
    assert [s.layer for s in inspect_model(now, reference=before) if s.id == "emptied-layer"] == ["2"]
    assert not [s for s in inspect_model(now, reference=now) if s.id == "emptied-layer"]


def test_the_score_is_the_share_of_zeros(dense):
    model = dense(6, 8, 3)
    with torch.no_grad():
        model[0].weight[:6] = 0
    found = scores(model)["mostly-zeros"]
    assert found["0"] == 0.75
    assert max(v for name, v in found.items() if name != "0") == 0


def test_from_one_half_it_is_a_caution_and_no_proof(dense):
    model = dense(6, 8, 3)
    with torch.no_grad():
        model[0].weight[:4] = 0
    (said,) = (s for s in judge(measure(model)) if s.id == "mostly-zeros")
    assert (said.layer, said.severity) == ("0", "caution")
    assert "50.0% of its 48 weights" in said.evidence
    assert not [s for s in judge(measure(model), Thresholds(mostly_zeros=0.51)) if s.id == "mostly-zeros"]
