"""A fellow client is the attacker: what it makes of mixtures with the weights, without them, and not knowing at all."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.audit.run import run_audit
from leakgauge.client.chain import client_step
from leakgauge.client.summed import seeds_of_clients, seen_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.mixing import Mixing
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.setup.plan import informed_by
from leakgauge.types import Batch, Client, Known, Scenario

TINY = Scenario(data="digits", model="mlp:hidden=32", trials=3, batch_size=1, attacks=("linear",), seed=3)
HOWS = [Mixing(clients=3), Mixing(clients=3, fusing="free"), Mixing(clients=2, known=True), Mixing(fusing="fixed")]

LOCALS = [Client(), Client(kind="fedavg", lr=0.1, epochs=2)]


@pytest.fixture
def net():
    return load_model("mlp:hidden=32", load("digits").spec, seed=0)


def victims(trials, samples):
    return draw_victims(load("digits"), trials, samples, seed=0)


def seen(defense, net, batch, informed, local=None):
    return seen_step(client_step(local or Client()), defense, informed=informed)(net, batch, (0, 1))


def alone(net, batch, clients, local=None):
    """The first client's own update."""
    size = batch.labels.shape[1] // clients
    mine = Batch(batch.inputs[:, :size], batch.labels[:, :size])
    return client_step(local or Client())(net, mine, (0, 1))


@pytest.mark.parametrize("defense", HOWS, ids=lambda d: d.spec)
@pytest.mark.parametrize("local", LOCALS, ids=lambda k: k.kind)
def test_a_fellow_client_has_the_update_of_a_relu_network(net, defense, local):
    batch = victims(2, 2 * defense.clients)
    informed, own = seen(defense, net, batch, True, local), alone(net, batch, defense.clients, local)
    for name, tensor in own.tensors.items():
        torch.testing.assert_close(informed.tensors[name], tensor, rtol=0, atol=1e-5)


def test_who_does_not_know_takes_the_mixture(net):
    batch = victims(2, 4)
    each = client_step(Client())(
        net,
        Batch(batch.inputs.reshape(4, 2, *batch.inputs.shape[2:]), batch.labels.reshape(4, 2)),
        [own for seed in (0, 1) for own in seeds_of_clients(seed, 2)],
    )
    got = seen(Mixing(clients=2, fusing="fixed", share=0.8), net, batch, False)
    for name, tensor in each.tensors.items():
        torch.testing.assert_close(got.tensors[name], 0.8 * tensor[::2] + 0.2 * tensor[1::2])


def test_each_victim_has_weights_of_its_own(net):
    batch = victims(2, 4)
    twins = Batch(batch.inputs[[0, 0]], batch.labels[[0, 0]])
    got = seen(Mixing(clients=2), net, twins, False)
    assert any(not torch.equal(t[0], t[1]) for t in got.tensors.values())


def test_an_audit_attacks_the_victims_samples_alone():
    both = dataclasses.replace(TINY, defenses=("mixing:clients=3", "mixing:clients=3,known=true"))
    report, pictures = run_audit(both)
    rows = {(r.defense, r.adaptive): r for r in report.summary if r.attack == "linear"}
    assert {len(f.records) for f in report.findings if f.attack == "linear"} == {1}
    for spec in both.defenses:
        assert rows[spec, True].success_rate.value == 1
        apart, taken = (rows[spec, informed].metrics["psnr_mean_per_image"].value for informed in (True, False))
        assert apart >= taken
    assert {tuple(p.shape) for p in pictures.recovered.values()} == {(3, 1, 1, 8, 8)}


def test_the_undefended_row_does_not_change_beside_it():
    scores = []
    for defenses in ((), ("mixing:clients=3",)):
        report, _ = run_audit(dataclasses.replace(TINY, defenses=defenses))
        scores.append([f.scores for f in report.findings if (f.attack, f.defense) == ("linear", "none")])
    assert scores[0] == scores[1]


def test_a_sum_and_mixtures_exclude_each_other():
    with pytest.raises(BadInput, match="a sum has nothing to mix"):
        run_audit(dataclasses.replace(TINY, defenses=("mixing+secure-aggregation",)))


def test_a_noised_client_sends_noise_into_its_mixtures(net):
    batch = victims(2, 4)
    step = client_step(Client())
    plain = seen_step(step, Mixing(clients=2), informed=False)(net, batch, (0, 1))
    noised = seen_step(step, Gaussian(std=0.1), Mixing(clients=2), informed=False)(net, batch, (0, 1))
    assert any(not torch.equal(t, noised.tensors[n]) for n, t in plain.tensors.items())


def test_guessed_weights_leave_the_scale_of_the_update_open(scene, first_layer):
    assert Mixing().ways(DLG()) == Mixing().ways(Linear()) == ("",)
    assert scene().posed(DLG(), Known(Mixing())).distance == "scaled"
    assert first_layer(Mixing()).combine == "least-squares"


def test_with_the_right_weights_the_same_attack_sees_another_update():
    attack = InvertingGradients(distance="cosine")
    for sure in (Mixing(known=True), Mixing(fusing="fixed")):
        assert sure.ways(DLG()) == ()
        assert informed_by(attack, (sure,)) == ((),), "played, though nothing in its problem changes"


def test_nothing_is_promised_and_nothing_is_sent_in_addition():
    assert Mixing().guarantee() is None


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"clients": 1}, "mixing: clients"),
        ({"share": 0.0}, "mixing: share"),
        ({"share": 1.0}, "mixing: share"),
        ({"share": 0.3}, r"at least 0\.5 where shares are drawn"),
        ({"fusing": "secret"}, "mixing: fusing"),
    ],
)
def test_settings_out_of_range_are_refused(settings, what):
    with pytest.raises(BadInput, match=what):
        Mixing(**settings)


def test_a_batch_that_cannot_be_shared_out_is_refused(net):
    with pytest.raises(NotApplicable, match="as many samples"):
        seen(Mixing(clients=3), net, victims(2, 4), True)
