"""The truth costs nothing once each client of a sum is simulated by itself."""

import pytest
import torch
from leakgauge.matching.sum_of_clients import with_clients
from leakgauge.matching.unrolling import with_repeats

from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.client.summed import seen_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.local_steps import LocalSteps
from leakgauge.defenses.secure_aggregation.defense import SecureAggregation
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import puzzle_of
from leakgauge.models import load_model
from leakgauge.types import LocalTraining, threat_model

STEPS = LocalTraining("fedavg", lr=0.5, epochs=2, batch_size=1)


def scene(local, unrolled=None, model="lenet-dlg:filters=4", before=()):
    data = load("digits")
    net = load_model(model, data.spec, 0)
    batch = draw_victims(data, 2, 6, 0)
    update = seen_step(client_step(local), *before, SecureAggregation(clients=3, bits=64))(net, batch, range(2))
    facts = facts_about(net, batch, data.spec, local, None)
    seen = observe(net, update, threat_model("honest-but-curious"), facts)
    flat = puzzle_of(seen, batch.labels, distance="l2", prior=lambda _, x, __: x.new_zeros(len(x)), unrolled=unrolled)
    return batch, seen, flat


def value(puzzle, batch):
    return puzzle.evaluator(torch.arange(batch.trials))(batch.inputs.flatten(1))[0]


def test_of_gradients_the_sum_is_one_batch():
    batch, seen, puzzle = scene(LocalTraining())
    assert (value(puzzle, batch) < 1e-8).all()
    assert (value(with_clients(puzzle, seen, 3), batch) < 1e-8).all()


def test_each_clients_steps_are_replayed_by_themselves():
    batch, seen, puzzle = scene(STEPS, STEPS)
    assert (value(puzzle, batch) > 1e-3).all()
    assert (value(with_clients(puzzle, seen, 3), batch) < 1e-8).all()


def test_steps_that_are_not_replayed_are_counted_for_one_client():
    gentle = LocalTraining("fedavg", lr=1e-3, epochs=2, batch_size=1)
    batch, seen, puzzle = scene(gentle)
    assert (value(puzzle, batch) > 100 * value(with_clients(puzzle, seen, 3), batch)).all()


@pytest.mark.parametrize("local", [LocalTraining(), STEPS])
def test_repeated_training_is_replayed_by_each_client(local):
    batch, seen, puzzle = scene(local, before=(LocalSteps(steps=3, lr=0.5),))
    assert (value(with_repeats(with_clients(puzzle, seen, 3), seen, 3, 0.5), batch) < 1e-8).all()


def test_batchnorm_takes_its_statistics_from_one_client():
    batch, seen, puzzle = scene(LocalTraining(batchnorm="train"), model="resnet20:width=2")
    together, apart = value(puzzle, batch), value(with_clients(puzzle, seen, 3), batch)
    assert (apart < 1e-6 * together).all()


def test_one_client_is_the_same_puzzle_and_a_number_that_does_not_fit_is_refused():
    _, seen, puzzle = scene(LocalTraining())
    assert with_clients(puzzle, seen, 1) is puzzle
    with pytest.raises(NotApplicable, match="clients=4 needs as many samples of each, not 6"):
        with_clients(puzzle, seen, 4)
