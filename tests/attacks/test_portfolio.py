"""The portfolio: members share passes without touching one another, and every answer is told."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.portfolio import MEMBERS, Portfolio
from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.data._samples import from_samples
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, threat_model


def seen(trials=2, samples=1, model="lenet-dlg:activation=relu,init=default", defense=None):
    local, data = Client(), load("digits")
    drawn = draw_victims(data, trials, samples, seed=3)
    batch = Batch(drawn.inputs.double(), drawn.labels)  # signs of small entries hang on rounding
    net = load_model(model, data.spec, seed=0).double()
    step = client_step(local) if defense is None else defense.wrap(client_step(local))
    update = step(net, batch, range(trials))
    return observe(net, update, threat_model("honest-but-curious"), facts_about(net, batch, data.spec, local, None))


def test_a_member_alone_is_inverting_gradients_with_its_settings():
    observation, first = seen(), MEMBERS[0]
    found = Portfolio(steps=12, members=3)(observation, (0, 1))
    alone = InvertingGradients(steps=12, distance=first.distance, tv=first.tv)(observation, (0, 1))
    torch.testing.assert_close(found.answers[:, 0], alone.inputs, rtol=1e-4, atol=1e-4)
    assert found.answer_names == tuple(map(str, MEMBERS[:3]))


def test_a_member_does_not_see_the_others_nor_another_victim():
    observation = seen()
    few, many = (Portfolio(steps=12, members=m)(observation, (0, 1)) for m in (2, 5))
    torch.testing.assert_close(few.answers, many.answers[:, :2], rtol=1e-4, atol=1e-4)
    alone = Portfolio(steps=12, members=2)(observation.take([1]), (1,))
    torch.testing.assert_close(alone.answers, few.answers[1:], rtol=1e-4, atol=1e-4)


def test_several_attempts_also_answer_with_their_mean():
    found = Portfolio(steps=8, members=2, restarts=3)(seen(samples=2), (0, 1))
    assert found.answers.shape == (2, 4, 2, 1, 8, 8)
    assert found.answer_names[2:] == tuple(f"{m}, mean of 3" for m in MEMBERS[:2])
    assert not torch.equal(found.answers[:, 0], found.answers[:, 2])


def test_one_answer_is_given_where_only_one_may_be_and_it_is_no_mean():
    found = Portfolio(steps=8, members=3, restarts=2)(seen(), (0, 1))
    for trial in range(2):
        assert any(torch.equal(found.inputs[trial], answer) for answer in found.answers[trial, :3])
    assert found.evaluations.tolist() == [6 * 9] * 2
    assert found.trace.shape[0] == 2
    assert (found.objective <= found.trace[:, 0]).all()


def test_more_smoothness_makes_one_member_of_those_that_come_to_the_same():
    found = Portfolio(steps=2, members=5, tv=0.1)(seen(), (0, 1))
    assert found.answer_names == ("relative-l1, tv=0.1", "cosine-each, tv=0.1", "cosine, tv=0.1")


def test_an_interrupt_keeps_nothing_that_was_not_finished(monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    found = Portfolio(steps=400, members=2)(seen(), (0, 1), stop)
    assert found.finished is not None
    assert not found.finished.any()


@pytest.mark.parametrize("name", ["soteria", "prune:share=0.9", "gaussian:std=0.01", "dp-sgd", "sign", "precode"])
def test_it_learns_of_defenses_as_inverting_gradients_does(name):
    from leakgauge import catalog

    defense = catalog.build("defenses", name)
    assert defense.ways(Portfolio()) == defense.ways(InvertingGradients())


def test_settings_that_cannot_be_are_refused():
    from leakgauge.errors import BadInput

    with pytest.raises(BadInput, match="members"):
        Portfolio(members=len(MEMBERS) + 1)
    assert dataclasses.replace(Portfolio(), members=2).rows_per_trial == 2


def test_targets_that_are_no_labels_are_not_told_as_labels():
    g = torch.Generator().manual_seed(0)
    rows, wanted = torch.rand(4, 3, generator=g), torch.rand(4, 1, generator=g)
    data = from_samples("rows", {"": rows.numpy()}, wanted.numpy())
    local = Client(loss="mse")
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Sigmoid(), torch.nn.Linear(5, 1))
    batch = Batch(data.inputs[:2, None], data.labels[:2, None])
    update = client_step(local)(net, batch, (0, 1))
    seen = observe(net, update, threat_model("honest-but-curious"), facts_about(net, batch, data.spec, local, None))
    found = Portfolio(steps=3, members=2)(seen, (0, 1))
    assert found.labels is None
    assert found.inputs.shape == (2, 1, 3)
