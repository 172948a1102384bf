"""The original at the true guess costs nothing, every attempt has a guess of its own, and unseen pixels are filled."""

import pytest
import torch

from leakgauge.attacks.cpl import CPL
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.ats import ATS
from leakgauge.defenses.ats.operations import draw, parse
from leakgauge.defenses.ats.undoing import AFTERWARDS, THROUGH, ways, ways_drawn, with_policy
from leakgauge.defenses.mixup import with_unmixing
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import matching_of
from leakgauge.models import load_model
from leakgauge.types import Client, Known, threat_model

SEEDS = (20, 21)
POLICY = "43-18-18"


def scene(samples=1, data="photos32", model="lenet-dlg:filters=4"):
    source = load(data)
    net = load_model(model, source.spec, 0)
    batch = draw_victims(source, 2, samples, 3, "distinct")
    defenses = (ATS(policy=POLICY),) if source.spec.kind == "image" else ()
    update = chain(client_step(Client()), *defenses)(net, batch, SEEDS)
    facts = facts_about(net, batch, source.spec, Client(), None)
    return batch, observe(net, update, threat_model("honest-but-curious+labels"), facts)


def problem_for(observation, labels, undo=THROUGH):
    problem = matching_of(observation, labels, distance="l2", prior=lambda _, inputs, __: inputs.new_zeros(len(inputs)))
    return with_policy(problem, observation, POLICY, undo)


def test_the_original_at_the_true_guess_explains_the_update():
    batch, observation = scene()
    problem = problem_for(observation, batch.labels)
    possible = ways(parse(POLICY))
    went = ways_drawn(draw(parse(POLICY), SEEDS, 1))
    true = torch.tensor([[float(possible.index(way))] for way in went])
    z = torch.cat((batch.inputs.flatten(1), true), 1)
    value, slope = problem.evaluator(torch.arange(2))(z)
    other, _ = problem.evaluator(torch.arange(2))(torch.cat((z[:, :-1], (true + 1) % len(possible)), 1))
    assert (value < 1e-10).all()
    assert (other > 100 * value).all()
    assert (slope[:, -1] == 0).all()  # nothing moves a guess


def test_attempts_go_through_all_ways_and_batches_draw_theirs():
    batch, observation = scene()
    problem = problem_for(observation, batch.labels)
    z = torch.zeros(2, problem.width)
    guesses = [float(problem.opening(z, attempt)[0, -1]) for attempt in range(len(ways(parse(POLICY))))]
    assert sorted(guesses) == list(range(8))
    batch, observation = scene(samples=4)
    problem = problem_for(observation, batch.labels)
    z = torch.zeros(2, problem.width)
    assert len({tuple(problem.opening(z, attempt)[0, -4:].tolist()) for attempt in range(8)}) > 1


@pytest.mark.parametrize("undo", [THROUGH, AFTERWARDS])
def test_the_attack_gives_back_the_original(undo):
    batch, observation = scene()
    attack = CPL(steps=6, schedule="halving")
    found = attack(observation, SEEDS, known=(Known(ATS(policy=POLICY), undo),))
    plain = attack(observation, SEEDS)
    error = (found.inputs.clamp(0, 1) - batch.inputs).square().mean((1, 2, 3, 4))
    untold = (plain.inputs.clamp(0, 1) - batch.inputs).square().mean((1, 2, 3, 4))
    assert error.mean() < untold.mean()
    assert torch.equal(found.labels, batch.labels)


def test_a_table_is_refused():
    batch, observation = scene(data="breast-cancer", model="mlp")
    with pytest.raises(NotApplicable, match="acts on pictures"):
        problem_for(observation, batch.labels)


def test_it_is_not_undone_behind_another_change_of_the_samples():
    batch, observation = scene(samples=2)
    problem = with_unmixing(matching_of(observation, batch.labels, distance="l2", prior=lambda *_: torch.zeros(2)))
    with pytest.raises(NotApplicable, match="another defense that changes the data"):
        with_policy(problem, observation, POLICY, THROUGH)
