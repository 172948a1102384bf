"""The rule is chosen by made-up batches of public data: sensibly, without the truth, trial by trial."""

import dataclasses

import torch
from torch import nn

from leakgauge.matching.label_counts import CANDIDATES, chosen_rules
from leakgauge.matching.last_layer import clues_of


def sure_network() -> nn.Sequential:
    """ReLU and large weights: predictions differ from sample to sample, as in a trained network."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(6)
    return made


def test_even_predictions_are_counted_by_their_mean(scene):
    clues = clues_of(scene("lenet-dlg:init=default", samples=16, trials=2).seen)
    assert chosen_rules(clues) == ["exact", "exact"]


def test_predictions_that_differ_are_counted_by_presence(scene):
    clues = clues_of(scene(sure_network(), samples=8, trials=2).seen)
    assert set(chosen_rules(clues)) <= set(CANDIDATES) - {"exact"}


def test_one_sample_without_noise_needs_no_trying(scene):
    assert chosen_rules(clues_of(scene(sure_network(), trials=2).seen)) == ["bias", "bias"]


def test_the_choice_sees_noise_and_nothing_else_of_the_update(scene):
    clues = clues_of(scene(sure_network(), samples=8, trials=2).seen)
    other = dataclasses.replace(clues, bias=clues.bias.flip(1), rows=clues.rows.flip(1))
    assert chosen_rules(other) == chosen_rules(clues)
    noisy = dataclasses.replace(clues, noise=torch.tensor([0.0, 10.0], dtype=torch.float64))
    assert chosen_rules(noisy)[0] == chosen_rules(clues)[0]


def test_a_single_public_sample_leaves_nothing_to_try_on(scene):
    clues = clues_of(scene(sure_network(), samples=8, trials=2).seen)
    alone = dataclasses.replace(clues, probe=clues.probe.take(torch.tensor([0])))
    assert chosen_rules(alone) == ["least-squares"] * 2
