"""Several local steps: replayed under every rule, also behind defenses; matched at one point of their way; refused."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.client.chain import client_step
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.client.summed import seen_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.dp_sgd import DPSGD
from leakgauge.defenses.local_steps import LocalSteps
from leakgauge.defenses.secure_aggregation import SecureAggregation
from leakgauge.errors import NotApplicable
from leakgauge.matching.noise import Noise
from leakgauge.matching.problem import Matching, matching_of
from leakgauge.matching.replays import AVERAGE, SURROGATE, UNROLLED, chosen_replay
from leakgauge.models import load_model
from leakgauge.types import Client, threat_model

RULES = {
    "plain": "",
    "momentum": "momentum=0.9,dampening=0.3",
    "nesterov": "momentum=0.9,nesterov=true",
    "decay": "weight_decay=0.1",
    "linear schedule": "schedule=linear",
    "cosine schedule": "schedule=cosine,momentum=0.9",
    "exponential schedule": "schedule=exponential,decay_by=0.5",
    "accumulation": "accumulate=2",
    "clipping": "clip=0.2",
    "proximal": "proximal=0.7",
    "loss": "label_smoothing=0.2,momentum=0.5",
    "all": "momentum=0.9,weight_decay=0.01,schedule=step,decay_every=2,decay_by=0.5,clip=1,proximal=0.1",
}
STEPS = "kind=fedavg,lr=0.2,epochs=3,batch_size=2"


def local_of(rule: str) -> Client:
    return Client.from_text(",".join(filter(None, (STEPS, RULES[rule]))))


def value_at(problem: Matching, inputs: torch.Tensor, place: float = 0.0) -> torch.Tensor:
    """Of inputs (T, N, ...), and a place on the way if one is searched for."""
    z = problem.in_units(inputs).flatten(1) if problem.unit is not None else inputs.flatten(1)
    more = z.new_full((len(z), problem.width - z.shape[1]), place)
    return problem.evaluator(torch.arange(len(z)))(torch.cat((z, more), 1))[0]


def other(inputs: torch.Tensor) -> torch.Tensor:
    return 1 - inputs


@pytest.mark.parametrize("rule", RULES)
def test_the_truth_stays_solved_under_every_rule(scene, rule):
    made = scene(trials=3, samples=4, local=local_of(rule), dtype=torch.float64, told="honest-but-curious+labels")
    problem = InvertingGradients(distance="l2").problem(made.seen, (0, 1, 2))
    size = problem.size()
    assert (value_at(problem, made.batch.inputs) < 1e-16 * size).all()
    assert (value_at(problem, other(made.batch.inputs)) > 1e-3 * size).all()


def test_the_truth_stays_solved_with_control_variates(scene, tmp_path):
    net = load_model("mlp:hidden=16", load("digits").spec, 0)
    g = torch.Generator().manual_seed(0)
    torch.save({n: 0.1 * torch.randn(p.shape, generator=g) for n, p in net.named_parameters()}, tmp_path / "c.pt")
    local = dataclasses.replace(local_of("momentum"), control=str(tmp_path / "c.pt"))
    made = scene(trials=3, samples=4, local=local, dtype=torch.float64, told="honest-but-curious+labels")
    problem = InvertingGradients().problem(made.seen, (0, 1, 2))
    assert (value_at(problem, made.batch.inputs) < 1e-12).all()


def behind(local: Client, *defenses) -> tuple[Matching, torch.Tensor]:
    """The problem of an attacker who knows these defenses, and the true inputs."""
    data, net = load("digits"), load_model("mlp:hidden=16", load("digits").spec, 0).double()
    batch = draw_victims(data, 2, 6, 0)
    batch = dataclasses.replace(batch, inputs=batch.inputs.double())
    update = seen_step(client_step(local), *defenses)(net, batch, range(2))
    facts = facts_about(net, batch, data.spec, local, None)
    seen = observe(net, update, threat_model("honest-but-curious+labels"), facts)
    problem = InvertingGradients(distance="l2").problem(seen, (0, 1))
    for defense in reversed(defenses):
        problem = defense.informs(problem, seen, "")
    return problem, batch.inputs


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "defense",
    [LocalSteps(steps=2), SecureAggregation(clients=3, bits=64), DPSGD(norm=0.5, sigma=0)],
    ids=lambda defense: defense.name,
)
def test_the_truth_stays_solved_behind_defenses(rule, defense):
    problem, inputs = behind(local_of(rule), defense)
    size = problem.size()
    assert (value_at(problem, inputs) < 1e-10 * size).all()
    assert (value_at(problem, other(inputs)) > 1e-4 * size).all()


@pytest.mark.parametrize("attack", [InvertingGradients(replay="surrogate"), Portfolio(replay="surrogate")])
def test_the_surrogate_is_the_gradient_at_a_point_of_the_way(scene, attack):
    """Against the same gradient by plain autograd at weights made by hand."""
    local = local_of("plain")
    made = scene(trials=2, samples=4, local=local, dtype=torch.float64, told="honest-but-curious+labels")
    problem = attack.problem(made.seen, (0, 1))
    assert problem.width == problem.pixels + 1
    z = torch.cat((problem.in_units(made.batch.inputs).flatten(1), torch.tensor([[0.0], [1.5]]).double()), 1)
    weights = problem.weights_in(z, problem.moved)
    for trial, share in enumerate(torch.sigmoid(torch.tensor([-3.0, -1.5])).tolist()):
        net = load_model("mlp:hidden=16", load("digits").spec, 0).double()
        with torch.no_grad():
            for name, p in net.named_parameters():
                p.add_(share * made.seen.update.tensors[name][trial])
        slow = fedsgd()(net, made.batch.take([trial]), (0,)).tensors
        fast = problem.simulated_with_graph(made.batch.inputs, made.batch.labels, {}, weights)
        for name, expected in slow.items():
            torch.testing.assert_close(fast[name][trial], expected[0], rtol=1e-6, atol=1e-9)


def test_a_point_on_the_way_explains_more_than_its_start(scene):
    local = Client.from_text("kind=fedavg,lr=0.3,epochs=10")
    made = scene(trials=3, samples=2, local=local, dtype=torch.float64, told="honest-but-curious+labels")
    values = [
        value_at(InvertingGradients(replay=replay).problem(made.seen, (0, 1, 2)), made.batch.inputs, 3.0)
        for replay in ("unrolled", "surrogate", "average")
    ]
    assert (values[0] < 1e-12).all()
    assert (values[1] < 0.5 * values[2]).all()


def test_the_place_on_the_way_has_the_slope_that_differences_measure(scene):
    local = Client.from_text("kind=fedavg,lr=0.3,epochs=5")
    made = scene(samples=2, local=local, dtype=torch.float64, told="honest-but-curious+labels")
    problem = InvertingGradients(replay="surrogate", tv=0.0).problem(made.seen, (0, 1))
    z = torch.randn(2, problem.width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    step = torch.zeros_like(z)
    step[:, -1] = 1e-5
    evaluate = problem.evaluator(torch.arange(2))
    measured = (evaluate(z + step)[0] - evaluate(z - step)[0]) / 2e-5
    torch.testing.assert_close(evaluate(z)[1][:, -1], measured, rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epochs=5", UNROLLED),
        ("epochs=2,batch_size=2,order=shuffled", UNROLLED),
        ("epochs=2,batch_size=2,momentum=0.9", UNROLLED),
        ("optimizer=adam", AVERAGE),
        ("optimizer=adam,epochs=5", SURROGATE),
    ],
)
def test_the_best_way_is_taken_unless_one_is_asked_for(scene, text, expected):
    seen = scene(samples=4, local=Client.from_text(f"kind=fedavg,{text}")).seen
    assert chosen_replay("auto", seen) == expected
    assert chosen_replay("average", seen) == AVERAGE
    assert chosen_replay("auto", seen, unrolls=False) == (AVERAGE if expected == UNROLLED else expected)


def test_a_gradient_has_no_way(scene):
    assert chosen_replay("surrogate", scene().seen) == AVERAGE


def test_signs_cannot_be_unrolled(scene):
    seen = scene(local=Client.from_text("kind=fedavg,optimizer=adam,epochs=2")).seen
    with pytest.raises(NotApplicable, match="adam makes signs; use replay=surrogate"):
        InvertingGradients(replay="unrolled").problem(seen, (0, 1))


def test_a_single_shuffled_epoch_is_replayed_in_some_order_of_the_guess(scene):
    """The attacker is not told which one: the truth answers in the order of the client alone."""
    local = Client.from_text("kind=fedavg,lr=0.5,batch_size=1,order=shuffled")
    made = scene(trials=2, samples=2, local=local, dtype=torch.float64, told="honest-but-curious+labels")
    problem = InvertingGradients().problem(made.seen, (0, 1))
    values = []
    for order in ([0, 1], [1, 0]):
        ordered = problem.replace(labels=made.batch.labels[:, order])
        values.append(value_at(ordered, made.batch.inputs[:, order]))
    assert (torch.stack(values).amin(0) < 1e-12).all()


@pytest.mark.parametrize(
    "attack",
    [InvertingGradients(replay="surrogate", steps=3), Portfolio(replay="surrogate", steps=3), DLG(steps=3)],
    ids=lambda attack: attack.name,
)
def test_the_search_runs_at_a_point_on_the_way(scene, attack):
    seen = scene(samples=2, local=Client.from_text(f"{STEPS},optimizer=adam")).seen
    found = attack(seen, (0, 1))
    assert found.inputs.shape == (2, 2, 1, 8, 8)
    assert torch.isfinite(found.objective).all()


def test_noise_that_is_known_leads_off_the_way(scene):
    """The weights that were shared are not where the client was."""
    seen = scene(samples=2, local=local_of("plain")).seen
    problem = matching_of(seen, None, distance="l2", surrogate=True).replace(noise=Noise(0.1, "update", "l2"))
    assert problem.weights_in(torch.zeros(2, problem.width), problem.moved) is None
