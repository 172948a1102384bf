"""The server is left with a sum: what that costs, and what an attacker makes of it."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.audit.run import run_audit
from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.client.summed import seen_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.local_steps import LocalSteps
from leakgauge.defenses.secure_aggregation import SecureAggregation, step_of
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.problem import matching_of
from leakgauge.models import load_model
from leakgauge.types import Client, Known, Partition, Scenario, SharedUpdate, threat_model

UPDATES = SharedUpdate("gradient", {"w": torch.randn(5, 7, 9, generator=torch.Generator().manual_seed(0))})
THREE = SecureAggregation(clients=3)
STEPS = Client("fedavg", lr=0.5, epochs=2, batch_size=1)
TINY = Scenario(
    data="digits",
    model="mlp:hidden=16",
    trials=2,
    batch_size=2,
    attacks=("linear",),
    seed=3,
    defenses=("secure-aggregation:clients=3",),
)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_the_server_has_the_plain_mean_within_the_rounding(bits):
    mean = SecureAggregation(bits=bits).aggregate(UPDATES).tensors["w"]
    error = (mean - UPDATES.tensors["w"].mean(0, keepdim=True)).abs().max()
    assert error <= step_of(16, bits, 5) / 2 + 1e-6  # of float32
    assert mean.shape == (1, 7, 9)


def test_what_does_not_fit_is_refused_and_not_cut_off_in_silence():
    with pytest.raises(NotApplicable, match=r"up to limit=2, and a client's 'w' has one of 3\.41; raise limit"):
        SecureAggregation(limit=2).aggregate(UPDATES)
    broken = UPDATES.map(lambda _, t: t * torch.nan)
    with pytest.raises(NotApplicable, match="one of nan"):
        SecureAggregation().aggregate(broken)


@pytest.mark.parametrize(("field", "value"), [("clients", 1), ("bits", 15), ("bits", 65), ("limit", 0)])
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(BadInput, match=f"secure-aggregation: {field}"):
        SecureAggregation(**{field: value})


def test_masked_words_travel_whole_and_keys_beside_them():
    shapes = {"w": torch.Size([10, 10]), "b": torch.Size([3])}
    assert SecureAggregation(bits=32).bytes_up(shapes) == 4 * 103 + 32
    assert SecureAggregation(bits=64).bytes_up(shapes) == 8 * 103 + 32
    assert SecureAggregation().bytes_down(shapes, 4, clients=10) == 4 * 103 + 9 * 32


@pytest.mark.parametrize("attack", [DLG(), InvertingGradients()], ids=lambda a: a.name)
def test_gradient_matching_knows_how_many_clients_there_are(scene, attack):
    assert THREE.ways(attack) == ("",)
    assert scene(samples=6).posed(attack, Known(THREE)).clients == 3


def test_other_attacks_get_what_they_can_use(first_layer):
    assert first_layer(SecureAggregation()).combine == "least-squares"
    assert SecureAggregation().ways(RandomGuess()) == ()


def summed(local, unrolled=None, model="lenet-dlg:filters=4", before=()):
    """Six samples of three clients, what is seen of their sum, and the problem of an attacker who knows of no sum."""
    data = load("digits")
    net = load_model(model, data.spec, 0)
    batch = draw_victims(data, 2, 6, 0)
    update = seen_step(client_step(local), *before, SecureAggregation(clients=3, bits=64))(net, batch, range(2))
    facts = facts_about(net, batch, data.spec, local, None)
    seen = observe(net, update, threat_model("honest-but-curious"), facts)
    flat = matching_of(seen, batch.labels, distance="l2", prior=lambda _, x, __: x.new_zeros(len(x)), unrolled=unrolled)
    return batch, seen, flat


def value(problem, batch):
    return problem.evaluator(torch.arange(batch.trials))(batch.inputs.flatten(1))[0]


def test_of_gradients_the_sum_is_one_batch():
    batch, seen, problem = summed(Client())
    assert (value(problem, batch) < 1e-8).all()
    assert (value(THREE.informs(problem, seen, ""), batch) < 1e-8).all()


def test_each_clients_steps_are_replayed_by_themselves():
    batch, seen, problem = summed(STEPS, STEPS)
    assert (value(problem, batch) > 1e-3).all()
    assert (value(THREE.informs(problem, seen, ""), batch) < 1e-8).all()


def test_steps_that_are_not_replayed_are_counted_for_one_client():
    batch, seen, problem = summed(Client("fedavg", lr=1e-3, epochs=2, batch_size=1))
    assert (value(problem, batch) > 100 * value(THREE.informs(problem, seen, ""), batch)).all()


@pytest.mark.parametrize("local", [Client(), STEPS])
def test_repeated_training_is_replayed_by_each_client(local):
    """The last to act informs first: of the sum, then of the steps behind it."""
    repeated = LocalSteps(steps=3, lr=0.5)
    batch, seen, problem = summed(local, before=(repeated,))
    assert (value(repeated.informs(THREE.informs(problem, seen, ""), seen, ""), batch) < 1e-8).all()


def test_batchnorm_takes_its_statistics_from_one_client():
    batch, seen, problem = summed(Client(batchnorm="train"), model="resnet20:width=2")
    together, apart = value(problem, batch), value(THREE.informs(problem, seen, ""), batch)
    assert (apart < 1e-6 * together).all()


def test_a_number_of_clients_that_does_not_fit_is_refused():
    _, seen, problem = summed(Client())
    with pytest.raises(NotApplicable, match="clients=4 needs as many samples of each, not 6"):
        SecureAggregation(clients=4).informs(problem, seen, "")


def test_every_record_of_the_sum_is_attacked_and_the_victims_own_are_shown():
    report, pictures = run_audit(TINY)
    sizes = {(f.attack, f.defense): len(f.records) for f in report.findings}
    assert sizes["linear", "none"] == 2
    assert sizes["linear", "secure-aggregation:clients=3"] == 6
    assert sizes["mean-image", "none"] == 6  # a floor for each of them
    assert {tuple(p.shape) for p in pictures.recovered.values()} == {(2, 2, 1, 8, 8)}
    row = next(r for r in report.summary if r.defense != "none" and r.adaptive)
    assert row.success_rate.records == 12


def test_the_undefended_row_does_not_change_beside_a_sum():
    alone, _ = run_audit(dataclasses.replace(TINY, defenses=()))
    beside, _ = run_audit(TINY)
    bare = [[f.scores for f in r.findings if (f.attack, f.defense) == ("linear", "none")] for r in (alone, beside)]
    assert bare[0] == bare[1]


def test_in_a_federation_the_others_are_other_clients():
    shared = Partition(kind="classes", clients=5, classes=2)
    report, _ = run_audit(dataclasses.replace(TINY, partition=shared))
    assert not any(f.error for f in report.findings)


def test_a_sum_of_more_samples_than_there_are_is_refused_in_one_line():
    with pytest.raises(BadInput, match="2 samples"):
        run_audit(dataclasses.replace(TINY, defenses=("secure-aggregation:clients=1000",)))
