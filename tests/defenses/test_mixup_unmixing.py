"""The true samples and the true weight cost nothing, and what is reported are samples, not mixtures."""

import math

import pytest
import torch

from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.mixup import _FIRST, Mixup, draw, with_unmixing
from leakgauge.matching.problem import matching_of
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, threat_model

SEEDS = (20, 21)


def scene(samples, told="honest-but-curious"):
    data = load("digits")
    net = load_model("lenet-dlg:filters=4", data.spec, 0)
    batch = draw_victims(data, 2, samples, 3, "distinct")
    rows, order = torch.arange(2)[:, None], batch.labels.argsort(1)
    batch = Batch(batch.inputs[rows, order], batch.labels[rows, order])  # as inferred labels come
    update = chain(client_step(Client()), Mixup())(net, batch, SEEDS)
    facts = facts_about(net, batch, data.spec, Client(), None)
    return batch, observe(net, update, threat_model(told), facts)


def without_prior(_, x, __):
    return x.new_zeros(len(x))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("samples", [2, 3])
def test_the_truth_costs_nothing(samples, known):
    batch, seen = scene(samples)
    problem = matching_of(seen, batch.labels if known else None, distance="l2", prior=without_prior)
    unmixing = with_unmixing(problem)
    weights, partners = draw(SEEDS, samples, 1.0)
    share = torch.where(partners[:, 0] == 1, weights, 1 - weights)  # the other way round is the other weight
    truth = torch.cat((batch.inputs.flatten(1), (torch.logit(share) - _FIRST)[:, None].float()), 1)
    assert unmixing.width == truth.shape[1]
    assert (unmixing.evaluator(torch.arange(2))(truth)[0] < 1e-9).all()
    assert (unmixing.evaluator(torch.arange(2))(truth + 0.2)[0] > 1e-4).all()
    assert unmixing.finish is not None
    inputs, labels = unmixing.finish(truth)
    torch.testing.assert_close(inputs, batch.inputs)
    assert torch.equal(labels, batch.labels)


def test_the_units_of_an_attack_are_kept():
    batch, seen = scene(2)
    problem = with_unmixing(InvertingGradients().problem(seen, SEEDS))
    z = torch.cat((((batch.inputs - problem.centre) / problem.unit).flatten(1), torch.zeros(2, 1)), 1)
    torch.testing.assert_close(problem.finish(z)[0], batch.inputs)
    torch.testing.assert_close(problem.boxed(z), z)
    w = 1 / (1 + math.exp(-_FIRST))
    mixture = w * batch.inputs + (1 - w) * batch.inputs.flip(1)
    torch.testing.assert_close(problem.split(z)[0], mixture)


def test_one_sample_was_mixed_with_nothing():
    batch, seen = scene(1)
    problem = matching_of(seen, batch.labels, distance="l2", prior=without_prior)
    assert with_unmixing(problem) is problem
