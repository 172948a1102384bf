"""The noise of a bottleneck stands in one sample's gradient; of a batch it is searched for."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.precode import READ, SEARCH, Precode, behind_the_bottleneck, visible_noise, with_noise
from leakgauge.engine.randomness import normal
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import inside, matching_of
from leakgauge.matching.updates import observed_gradient
from leakgauge.models import load_model
from leakgauge.types import Client, threat_model

SEEDS = (5, 6)
DEFENSE = Precode(width=16)


def scene(samples=1, labels=True):
    data = load("digits")
    net = DEFENSE.prepare(load_model("lenet-dlg:filters=4", data.spec, 0))
    batch = draw_victims(data, 2, samples, 0)
    update = chain(client_step(Client()), DEFENSE)(net, batch, SEEDS)
    facts = facts_about(net, batch, data.spec, Client(), None)
    observation = observe(net, update, threat_model("honest-but-curious"), facts)
    known = batch.labels if labels else None
    problem = matching_of(observation, known, distance="l2", prior=lambda _, x, __: x.new_zeros(len(x)))
    return batch, problem, observed_gradient(observation)


def value(problem, z):
    return problem.evaluator(torch.arange(len(z)))(z)[0]


def test_one_samples_gradient_shows_the_noise():
    _, problem, gradient = scene()
    noise = visible_noise("fc.bottleneck", problem.model.fc.bottleneck, gradient)
    torch.testing.assert_close(noise, normal(SEEDS, "precode", (16,)), rtol=1e-3, atol=1e-4)


def test_with_the_noise_that_was_read_the_truth_costs_nothing():
    batch, problem, gradient = scene()
    truth = batch.inputs.flatten(1)
    assert (value(problem, truth) > 1e-3).all()
    assert (value(with_noise(problem, gradient, READ), truth) < 1e-6).all()


@pytest.mark.parametrize(("samples", "way"), [(1, SEARCH), (2, SEARCH), (2, READ)])
def test_the_noise_is_a_part_of_what_is_searched_for(samples, way):
    batch, problem, gradient = scene(samples)
    wider = with_noise(problem, gradient, way)
    assert wider.width == problem.width + 16
    truth = torch.cat((batch.inputs.flatten(1), normal(SEEDS, "precode", (16,))), 1)
    assert (value(wider, truth) < 1e-6).all()
    slope = wider.evaluator(torch.arange(2))(truth + 0.1)[1]
    assert (slope[:, -16:] != 0).any()


def test_inputs_and_label_logits_keep_their_places():
    _, problem, gradient = scene(labels=False)
    wider = with_noise(problem, gradient, SEARCH)
    z = torch.rand(2, wider.width, generator=torch.Generator().manual_seed(0))
    for mine, other in zip(wider.split(z), problem.split(z[:, :-16]), strict=True):
        assert torch.equal(mine, other)
    assert torch.equal(wider.buffers_in(z)["fc.bottleneck.noise"], z[:, -16:])
    assert torch.equal(wider.boxed(z + 5)[:, problem.pixels :], (z + 5)[:, problem.pixels :])


def test_models_that_do_not_fit_are_refused():
    _, problem, gradient = scene()
    frozen = {name: g for name, g in gradient.items() if "decode" not in name}
    with pytest.raises(NotApplicable, match=r"fc\.bottleneck\.decode"):
        with_noise(problem, frozen, READ)
    bare = load_model("lenet-dlg:filters=4", load("digits").spec, 0)
    with pytest.raises(NotApplicable, match="variational bottleneck"):
        with_noise(dataclasses.replace(problem, model=bare), gradient, SEARCH)


def test_a_bottleneck_goes_with_the_layer_behind_it():
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2, bias=False)))
    extended = Precode(width=2).prepare(net)
    names = [name for name, _ in extended.named_parameters()]
    kept = set(names) - inside(behind_the_bottleneck(extended), names)
    assert kept == {"0.weight", "0.bias", "2.0.weight", "2.0.bias"}
