"""Replayed steps cost nothing at the truth, whether a mean gradient or a weight difference was shared."""

import pytest
import torch
from leakgauge.matching.muting import muted
from leakgauge.matching.unrolling import with_repeats

from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.local_steps import LocalSteps
from leakgauge.matching.problem import puzzle_of
from leakgauge.models import load_model
from leakgauge.types import LocalTraining, threat_model


def scene(local, defense):
    data = load("digits")
    net = load_model("lenet-dlg:filters=4", data.spec, 0)
    batch = draw_victims(data, 2, 2, 0)
    update = chain(client_step(local), defense)(net, batch, range(2))
    facts = facts_about(net, batch, data.spec, local, None)
    seen = observe(net, update, threat_model("honest-but-curious"), facts)
    return batch, seen, puzzle_of(seen, batch.labels, distance="l2", prior=lambda _, x, __: x.new_zeros(len(x)))


def value(puzzle, z):
    return puzzle.evaluator(torch.arange(len(z)))(z)[0]


@pytest.mark.parametrize(
    "local", [LocalTraining(), LocalTraining("fedavg", lr=0.5, epochs=2), LocalTraining("fedavg", lr=0.5, batch_size=1)]
)
def test_the_truth_costs_nothing_once_the_steps_are_replayed(local):
    batch, seen, puzzle = scene(local, LocalSteps(steps=3, lr=0.5))
    truth = batch.inputs.flatten(1)
    assert (value(puzzle, truth) > 1e-3).all()
    assert (value(with_repeats(puzzle, seen, 3, 0.5), truth) < 1e-8).all()
    assert (value(with_repeats(puzzle, seen, 4, 0.5), truth) > 1e-6).all()


def test_what_is_muted_stays_muted_and_once_is_the_same_puzzle():
    _, seen, puzzle = scene(LocalTraining(), LocalSteps(steps=3))
    assert with_repeats(puzzle, seen, 1, 0.5) is puzzle
    assert "fc.weight" not in with_repeats(muted(puzzle, "last"), seen, 3, 0.01).observed
