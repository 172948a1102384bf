"""What the rules read: the last layer's gradient, a stand-in for a missing bias, and the network's own predictions."""

import pytest
import torch
from torch import nn

from leakgauge.matching.last_layer import Probe, clues_of, dummy_inputs, make_clues


def net(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Sigmoid(), nn.Linear(16, 10, bias=bias))


def test_clues_are_the_last_layers_gradient_in_double_precision(scene):
    made = scene(net(), samples=4)
    clues = clues_of(made.seen)
    assert clues.rows.dtype == clues.bias.dtype == torch.float64
    assert torch.equal(clues.bias, made.seen.update.tensors["3.bias"].double())
    assert clues.samples == 4
    assert clues.has_bias


def test_the_probe_is_public_data_where_there_is_any_and_dummies_elsewhere(scene):
    known = clues_of(scene(net()).seen).probe
    assert known.features.shape == (1, 64, 16)
    assert known.labels.shape == (64,)
    for probe in (
        clues_of(scene(net()).seen, public=False).probe,
        clues_of(scene(net(), told="eavesdropper").seen).probe,
    ):
        assert probe.labels is None
        assert probe.features.shape[1] == len(dummy_inputs((1, 8, 8)))


def test_features_and_layer_give_the_predictions(scene):
    probe = clues_of(scene(net()).seen).probe
    logits = probe.features @ probe.weight.mT + probe.offset[:, None]
    torch.testing.assert_close(logits.softmax(-1), probe.predictions, rtol=1e-5, atol=1e-6)


def test_a_missing_bias_is_stood_in_for(scene):
    """The true bias gradient of the same network, had it a bias of zero, is what stands in for it."""
    with_bias, without = net(), net(bias=False)
    with torch.no_grad():
        for mine, other in zip(without.parameters(), with_bias.parameters(), strict=False):
            mine.copy_(other)
        with_bias[3].bias.zero_()
    wanted = clues_of(scene(with_bias, samples=8).seen).bias
    found = clues_of(scene(without, samples=8).seen)
    assert not found.has_bias
    torch.testing.assert_close(found.bias, wanted, rtol=0.1, atol=0.02)


@pytest.mark.parametrize("labels", [None, torch.tensor([0, 0, 2])])
def test_shares_average_over_a_class_or_over_all_where_it_has_none(labels):
    blank = torch.zeros(1, 3, 3, dtype=torch.float64)
    probe = Probe(blank, blank, blank, blank[:, 0], labels)
    third = [1 / 3] * 3
    expected = [third] * 3 if labels is None else [[0.5, 0.5, 0], third, [0, 0, 1]]
    torch.testing.assert_close(probe.shares, torch.tensor(expected, dtype=torch.float64))
    assert probe.label_shares.sum() == pytest.approx(1)


def test_taking_trials_takes_their_noise_too(scene):
    clues = clues_of(scene(net(), trials=3, samples=2).seen)
    some = clues.take(torch.tensor([2, 0]))
    assert torch.equal(some.rows, clues.rows[[2, 0]])
    assert torch.equal(some.noise, clues.noise[[2, 0]])
    assert make_clues(clues.rows, clues.bias, 2, clues.probe).noise.equal(clues.noise)
