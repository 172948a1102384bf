"""The counting rules on their own: by hand where that is possible, and on a thousand random networks."""

import pytest
import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import trial_gradients
from leakgauge.matching.label_counts import RULES, misfit
from leakgauge.matching.last_layer import Clues, Probe, make_clues

CLASSES, PIXELS, HIDDEN = 10, 24, 32


def even_clues(counts: list[list[int]], features: int = 3) -> Clues:
    """All logits equal and all features one: the bias is 1 / C - n / N, as in METHODS G3."""
    n = torch.tensor(counts, dtype=torch.float64)
    classes, samples = n.shape[1], int(n[0].sum())
    bias = 1 / classes - n / samples
    even = torch.full((1, 4, classes), 1 / classes, dtype=torch.float64)
    ones = torch.ones(1, 4, features, dtype=torch.float64)
    probe = Probe(ones, even, torch.zeros(1, classes, features).double(), torch.zeros(1, classes).double(), None)
    return make_clues(bias[..., None].expand(-1, -1, features), bias, samples, probe)


COUNTS = [[5, 0, 2, 1], [0, 8, 0, 0], [2, 2, 2, 2], [1, 3, 3, 1]]


@pytest.mark.parametrize("rule", ["exact", "least-squares"])
def test_equal_logits_give_exact_counts(rule):
    assert RULES[rule](even_clues(COUNTS)).tolist() == COUNTS


def test_learnt_impacts_are_exact_for_equal_logits_while_the_gradient_does_not_vanish():
    assert RULES["llg-plus"](even_clues(COUNTS[:2])).tolist() == COUNTS[:2]


def test_presence_is_exact_where_every_class_of_the_batch_stands_out():
    some = [[5, 3, 0, 0], [0, 0, 0, 8]]
    assert RULES["presence"](even_clues(some)).tolist() == some


@pytest.mark.parametrize("rule", RULES)
def test_counts_are_whole_not_negative_and_sum_to_the_batch(rule):
    g = torch.Generator().manual_seed(0)
    clues = even_clues([[3, 1, 0, 1, 0]] * 30)
    rows, bias = (torch.randn(t.shape, generator=g, dtype=torch.float64) for t in (clues.rows, clues.bias))
    for samples in (1, 5, 17):
        counts = RULES[rule](make_clues(rows, bias, samples, clues.probe))
        assert counts.dtype == torch.int64
        assert (counts >= 0).all()
        assert (counts.sum(1) == samples).all()


def test_presence_by_sign_and_the_smallest_entries_by_hand():
    bias = torch.tensor([[-0.4, 0.3, -0.1, 0.2]], dtype=torch.float64)
    rows = torch.tensor([[[-0.4, 0.1], [0.3, -0.9], [-0.1, 0.0], [0.2, 0.3]]], dtype=torch.float64)
    clues = make_clues(rows, bias, 5, even_clues([[1, 1, 2, 1]], 2).probe)
    assert RULES["sign"](clues).tolist() == [[4, 0, 1, 0]]
    assert RULES["yin"](clues).tolist() == [[1, 2, 1, 1]]  # every class once, and once more the most negative
    assert RULES["yin"](make_clues(rows, bias, 2, clues.probe)).tolist() == [[1, 1, 0, 0]]


def test_the_second_stage_of_llg_relieves_the_class_it_has_counted():
    """One released version relieves another class and counts the same label for ever."""
    bias = torch.tensor([[-0.5, -0.3, 0.8]], dtype=torch.float64)
    clues = make_clues(bias[..., None], bias, 8, even_clues([[4, 2, 2]], 1).probe)
    assert RULES["bias"](clues).tolist() == [[5, 3, 0]]


def test_noise_is_measured_by_columns_that_do_not_sum_to_zero():
    clues = even_clues([COUNTS[0]] * 2, features=500)
    assert clues.noise.max() < 1e-12
    g = torch.Generator().manual_seed(1)
    rows = clues.rows + 0.01 * torch.randn(clues.rows.shape, generator=g, dtype=torch.float64)
    noisy = make_clues(rows, clues.bias, clues.samples, clues.probe)
    assert noisy.noise.sub(0.01).abs().max() < 1e-3


def test_misfit_is_zero_for_counts_that_explain_the_bias():
    clues = even_clues(COUNTS)
    assert misfit(clues, torch.tensor(COUNTS)).max() < 1e-12
    assert misfit(clues, torch.tensor(COUNTS).roll(1, 1)).max() > 0.5


def random_networks(networks: int, samples: int, activation: nn.Module) -> tuple[Clues, Tensor]:
    """As many networks as asked for, initialised as PyTorch does, each with a batch of its own; (clues, counts)."""
    g = torch.Generator().manual_seed(samples)
    net = nn.Sequential(nn.Linear(PIXELS, HIDDEN), activation, nn.Linear(HIDDEN, CLASSES)).double()
    weights = {
        name: (2 * torch.rand(networks, *p.shape, generator=g, dtype=torch.float64) - 1)
        / (PIXELS if name[0] == "0" else HIDDEN) ** 0.5
        for name, p in net.named_parameters()
    }
    inputs = 0.5 + 0.1 * torch.randn(networks, samples, PIXELS, generator=g, dtype=torch.float64)
    labels = torch.randint(CLASSES, (networks, samples), generator=g) * torch.randint(2, (networks, 1), generator=g)
    gradient = trial_gradients(net, inputs, labels, weights)
    public = 0.5 + 0.1 * torch.randn(512, PIXELS, generator=g, dtype=torch.float64)
    hidden = activation(public @ weights["0.weight"].mT + weights["0.bias"][:, None])  # (T, S, h)
    logits = hidden @ weights["2.weight"].mT + weights["2.bias"][:, None]
    probe = Probe(hidden, logits.softmax(-1), weights["2.weight"], weights["2.bias"], None)
    counts = nn.functional.one_hot(labels, CLASSES).sum(1)
    return make_clues(gradient["2.weight"], gradient["2.bias"], samples, probe), counts


@pytest.mark.parametrize("activation", [nn.Sigmoid(), nn.ReLU(), nn.Tanh()])
@pytest.mark.parametrize("samples", [1, 3, 16, 64, 256])
def test_the_mean_prediction_counts_exactly_on_a_thousand_untrained_networks(samples, activation):
    clues, counts = random_networks(67, samples, activation)  # 1,005 in all
    assert torch.equal(RULES["exact"](clues), counts)
