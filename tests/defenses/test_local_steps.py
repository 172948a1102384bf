"""METHODS D10: real local steps, written out by hand; one step is no defense; who replays them sees through it."""

import copy

import pytest
import torch
from torch import nn

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.local_steps import LocalSteps
from leakgauge.defenses.soteria import Soteria
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.setup.plan import informed_by
from leakgauge.types import Client, Known

SEEDS = (21, 22, 23)


@pytest.fixture(scope="module")
def model():
    return load_model("lenet-dlg:filters=4", load("digits").spec, seed=0)


@pytest.fixture(scope="module")
def victims():
    return draw_victims(load("digits"), trials=3, batch_size=2, seed=0)


def shared(model, batch, *defenses, local=None):
    return chain(client_step(local or Client()), *defenses)(model, batch, SEEDS)


def test_the_mean_gradient_is_that_of_a_plain_sgd_loop(model, victims):
    update = shared(model, victims, LocalSteps(steps=4, lr=0.3))
    assert update.kind == "gradient"
    for t in range(3):
        worker = copy.deepcopy(model)
        optimiser = torch.optim.SGD(worker.parameters(), lr=0.3)
        for _ in range(4):
            optimiser.zero_grad()
            nn.functional.cross_entropy(worker(victims.inputs[t]), victims.labels[t]).backward()
            optimiser.step()
        for name, after in worker.named_parameters():
            expected = (model.get_parameter(name) - after) / (0.3 * 4)
            torch.testing.assert_close(update.tensors[name][t], expected, rtol=1e-3, atol=2e-6, msg=name)


@pytest.mark.parametrize("local", [Client("fedavg", lr=0.1, epochs=2, batch_size=1)])
def test_a_fedavg_client_repeats_its_local_training(model, victims, local):
    found = shared(model, victims, LocalSteps(steps=3), local=local)
    longer = shared(model, victims, local=Client("fedavg", lr=0.1, epochs=6, batch_size=1))
    assert found.kind == "weight_delta"
    for name, tensor in longer.tensors.items():
        torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


def test_running_statistics_go_on_where_the_last_step_left_them():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 10)).eval()
    batch = draw_victims(load("digits"), trials=3, batch_size=4, seed=0)
    local, longer = (Client("fedavg", lr=0.1, epochs=e, batchnorm="train") for e in (1, 3))
    found, expected = shared(net, batch, LocalSteps(steps=3), local=local), shared(net, batch, local=longer)
    for name, buffer in expected.buffers.items():
        torch.testing.assert_close(found.buffers[name], buffer, rtol=1e-4, atol=1e-6, msg=name)


def test_one_step_is_the_undefended_client_and_attack(model, victims):
    off = LocalSteps(steps=1)
    bare, defended = shared(model, victims), shared(model, victims, off)
    assert all(torch.equal(defended.tensors[n], t) for n, t in bare.tensors.items())
    assert off.ways(DLG()) == off.ways(Linear()) == ()


def test_what_stands_before_it_draws_anew_at_every_step(model, victims):
    """Noise of std s at each of four steps leaves s / 2 in the mean; drawn once it would leave s."""
    loud = Gaussian(std=1.0)
    noise = shared(model, victims, loud, LocalSteps(steps=4, lr=1e-9)).tensors["conv2.weight"]
    assert 0.4 < noise.std() < 0.6


@pytest.mark.parametrize(("field", "value"), [("steps", 0), ("lr", 0.0)])
def test_settings_outside_their_range_are_refused(field, value):
    with pytest.raises(BadInput, match=f"local-steps: {field} must be"):
        LocalSteps(**{field: value})


@pytest.mark.parametrize("attack", [DLG(), InvertingGradients()], ids=lambda a: a.name)
def test_the_attacker_who_knows_replays_the_steps(scene, attack):
    defense = LocalSteps(steps=7, lr=0.2)
    assert defense.ways(attack) == ("",)
    posed = scene(defense).posed(attack, Known(defense))
    assert (posed.unrolled.epochs, posed.unrolled.lr, posed.mean_of_steps) == (7, 0.2, True)


def test_a_first_layer_is_fitted_to_all_rows_and_a_floor_has_nothing_to_know(first_layer):
    assert first_layer(LocalSteps()).combine == "least-squares"
    assert LocalSteps().ways(RandomGuess()) == ()


def value(problem, inputs):
    return problem.evaluator(torch.arange(len(inputs)))(inputs.flatten(1))[0]


@pytest.mark.parametrize(
    "local", [Client(), Client("fedavg", lr=0.5, epochs=2), Client("fedavg", lr=0.5, batch_size=1)]
)
def test_the_truth_costs_nothing_once_the_steps_are_replayed(scene, local):
    """Whether a mean gradient or a weight difference was shared."""
    made = scene(LocalSteps(steps=3, lr=0.5), samples=2, local=local)
    truth = made.batch.inputs
    assert (value(made.matching(), truth) > 1e-3).all()
    assert (value(made.matching(Known(LocalSteps(steps=3, lr=0.5))), truth) < 1e-8).all()
    assert (value(made.matching(Known(LocalSteps(steps=4, lr=0.5))), truth) > 1e-6).all()


def test_what_another_defense_left_out_stays_out_and_one_step_is_the_same_problem(scene):
    made = scene(LocalSteps(steps=3, lr=0.01))
    plain = made.matching()
    assert LocalSteps(steps=1).informs(plain, made.seen, "") is plain
    both = made.matching(Known(LocalSteps(steps=3, lr=0.01)), Known(Soteria(), "without the layer"))
    assert plain.observed.keys() - both.observed.keys() == {"fc.weight"}


def test_replaying_beats_taking_the_mean_for_one_gradient(attacked):
    defense, attack = LocalSteps(steps=4, lr=1.0), CPL(steps=8, threshold=1e-9)
    (known,) = informed_by(attack, (defense,))
    plain, replayed = (attacked(defense, attack, "lenet-dlg:filters=6", k) for k in ((), known))
    assert replayed.median() > plain.median() + 8


def test_the_first_layers_ratio_does_not_care(attacked):
    defense = LocalSteps(steps=6, lr=0.5)
    for known in ((), (Known(defense),)):
        assert attacked(defense, Linear(), "mlp:hidden=32", known).min() > 80


def test_it_promises_nothing():
    assert LocalSteps().guarantee() is None
