"""METHODS D7: nothing leaves longer than the bound, per sample or per client, and directions stay."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.idlg import IDLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses import _clipping
from leakgauge.defenses._clipping import Clipping, clipped
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.prune import Prune
from leakgauge.engine.gradients import trial_gradients
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.problem import matching_of
from leakgauge.models import load_model
from leakgauge.servers.imprint import Imprint
from leakgauge.setup.plan import informed_by
from leakgauge.types import Batch, Client, Known, threat_model

SEEDS = (5, 6)
ROWS = {
    "w": torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0)),
    "b": 1e-3 * torch.randn(3, 10, generator=torch.Generator().manual_seed(1)),
}


@pytest.fixture(scope="module")
def model():
    return load_model("mlp:hidden=8", load("digits").spec, seed=0)


@pytest.fixture(scope="module")
def victims():
    return draw_victims(load("digits"), trials=2, batch_size=3, seed=0)


def length(tensors, row):
    return torch.cat([t[row].flatten().double() for t in tensors.values()]).norm()


def slow(model, batch, trial, norm, scope):
    """One sample after another, by autograd."""
    total = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    for x, y in zip(batch.inputs[trial], batch.labels[trial], strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        gradient = dict(zip(total, torch.autograd.grad(loss, list(model.parameters())), strict=True))
        whole = torch.cat([g.flatten() for g in gradient.values()]).norm()
        for name, g in gradient.items():
            own = whole if scope == "whole" else g.norm()
            total[name] += g * min(1.0, float(norm / own)) / len(batch.labels[trial])
    return total


@pytest.mark.parametrize("scope", ["whole", "layer"])
@pytest.mark.parametrize("norm", [0.05, 0.7, 100.0])
def test_each_sample_is_clipped_as_a_slow_loop_does_it(model, victims, norm, scope):
    update = chain(client_step(Client()), Clip(norm, scope=scope))(model, victims, SEEDS)
    for t in range(2):
        for name, expected in slow(model, victims, t, norm, scope).items():
            torch.testing.assert_close(update.tensors[name][t], expected, rtol=1e-5, atol=1e-7, msg=name)


@pytest.mark.parametrize("norm", [1e-4, 0.1, 1.0])
def test_no_row_is_longer_than_the_bound_and_short_ones_stay(norm):
    whole, each = clipped(ROWS, norm, "whole"), clipped(ROWS, norm, "layer")
    for row in range(3):
        assert length(whole, row) <= norm * (1 + 1e-6)
        assert all(t[row].double().norm() <= norm * (1 + 1e-6) for t in each.values())
    assert torch.equal(clipped({"b": ROWS["b"]}, 1.0, "whole")["b"], ROWS["b"])
    assert torch.equal(clipped(ROWS, 1e6, "whole")["w"], ROWS["w"])


def test_a_gradient_of_zeros_stays_zero():
    assert (clipped({"w": torch.zeros(2, 4)}, 0.1, "whole")["w"] == 0).all()


def test_the_update_of_a_client_is_clipped_as_one(defended):
    sent = defended(Clip(0.5, unit="client"), ROWS, range(3))
    for row in range(3):
        assert length(sent, row) == pytest.approx(0.5, rel=1e-6)
        factor = sent["w"][row] / ROWS["w"][row]
        assert factor.std() < 1e-6
        assert factor.mean() == pytest.approx(float((sent["b"][row] / ROWS["b"][row]).mean()), rel=1e-5)


def test_parts_of_a_batch_add_up_to_the_whole(model, victims, monkeypatch):
    step = chain(client_step(Client()), Clip(0.1))
    together = step(model, victims, SEEDS)
    monkeypatch.setattr(_clipping, "fitting", lambda *_: 1)
    apart = step(model, victims, SEEDS)
    for name, tensor in together.tensors.items():
        torch.testing.assert_close(apart.tensors[name], tensor, msg=name)


def test_every_local_step_is_clipped(model, victims):
    """Two local steps by hand: the second starts where the first ended."""
    local = Client("fedavg", epochs=2, lr=0.5)
    update = chain(client_step(local), Clip(0.1))(model, victims, SEEDS)
    net = load_model("mlp:hidden=8", load("digits").spec, seed=0)
    for _ in range(2):
        gradient = slow(net, victims, 1, 0.1, "whole")
        with torch.no_grad():
            for name, p in net.named_parameters():
                p -= 0.5 * gradient[name]
    for (name, after), before in zip(net.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(update.tensors[name][1], (after - before).detach(), rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("local", [Client(), Client("fedavg")])
def test_batchnorm_that_mixes_samples_is_refused_by_name(local):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 10)).eval()
    batch = draw_victims(load("digits"), trials=2, batch_size=3, seed=0)
    mixing = Client(local.kind, batchnorm="train")
    with pytest.raises(NotApplicable, match=r"BatchNorm layer '2' mixes .* batchnorm=eval, or a model with GroupNorm"):
        chain(client_step(mixing), Clip())(net, batch, SEEDS)
    chain(client_step(local), Clip())(net, batch, SEEDS)  # running statistics mix nothing
    net[2].running_mean = net[2].running_var = None
    with pytest.raises(NotApplicable, match="BatchNorm layer '2'"):
        chain(client_step(local), Clip())(net, batch, SEEDS)


def test_behind_another_defense_each_samples_own_message_is_clipped(model, victims):
    update = chain(client_step(Client()), Prune(0.9), Clip(0.1))(model, victims, SEEDS)
    rows = [chain(client_step(Client()), Prune(0.9))(model, victims_of(victims, n), SEEDS) for n in range(3)]
    for name, tensor in update.tensors.items():
        expected = sum(clipped(r.tensors, 0.1, "whole")[name] for r in rows) / 3
        torch.testing.assert_close(tensor, expected, msg=name)


def victims_of(batch, sample):
    return type(batch)(batch.inputs[:, [sample]], batch.labels[:, [sample]])


def test_behind_another_defense_local_steps_and_batchnorm_cannot_be_seen(model, victims):
    with pytest.raises(NotApplicable, match="write it first"):
        chain(client_step(Client("fedavg")), Prune(0.5), Clip())(model, victims, SEEDS)
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10)).eval()
    with pytest.raises(NotApplicable, match="write clip first in the chain"):
        chain(client_step(Client()), Prune(0.5), Clip())(net, victims, SEEDS)


def test_zero_is_the_identity_and_has_no_adaptive_attack(defended):
    assert torch.equal(defended(Clip(0, unit="client"), ROWS, range(3))["w"], ROWS["w"])
    assert Clip(0).ways(DLG()) == Clip(0).ways(Linear()) == ()


def test_fields_are_checked():
    with pytest.raises(BadInput, match="clip: norm must be at least 0"):
        Clip(norm=-1)
    with pytest.raises(BadInput, match="clip: unit"):
        Clip(unit="server")


def test_who_knows_replays_what_was_clipped_sample_by_sample(scene):
    defense = Clip(0.1, scope="layer")
    assert defense.ways(DLG()) == defense.ways(InvertingGradients()) == ("",)
    for attack in (DLG(), InvertingGradients()):
        posed = scene(defense).posed(attack, Known(defense))
        assert posed.client_gradient.func.__self__ == Clipping(0.1, "layer", "sample")
        assert posed.distance == attack.distance


@pytest.mark.parametrize("steps", ["", "kind=fedavg,epochs=2,lr=0.5,"])
@pytest.mark.parametrize("loss", ["label_smoothing=0.2", "loss=nll-on-logits", "loss=mse"])
def test_what_is_replayed_is_the_clients_own_loss(model, victims, loss, steps):
    local, defense, data = Client.from_text(steps + loss), Clip(0.05), load("digits").spec
    if "mse" in loss:
        data, labels = dataclasses.replace(data, target="classes"), torch.eye(10)[victims.labels]
        victims = Batch(victims.inputs, labels)
    update = chain(client_step(local), defense)(model, victims, SEEDS)
    facts = facts_about(model, victims, data, local, None)
    seen = observe(model, update, threat_model("honest-but-curious"), facts)
    posed = matching_of(seen, victims.labels, distance="l2", unrolled=local if steps else None)
    informed = defense.informs(posed, seen, "")
    for name, tensor in informed.simulated(victims.inputs, victims.labels).items():
        torch.testing.assert_close(tensor, update.tensors[name], rtol=1e-4, atol=1e-7)
    other = defense.informs(posed.replace(client_gradient=trial_gradients), seen, "")
    if "mse" not in loss:
        wrong = other.simulated(victims.inputs, victims.labels)
        assert not torch.allclose(wrong["fc2.bias"], update.tensors["fc2.bias"], rtol=1e-2)


@pytest.mark.parametrize(
    ("attack", "scope", "distance"),
    [(DLG(), "whole", "scaled"), (IDLG(), "layer", "scaled-each"), (InvertingGradients(), "layer", "cosine-each")],
    ids=lambda part: getattr(part, "name", part),
)
def test_who_knows_leaves_the_scale_of_a_clipped_update_open(scene, attack, scope, distance):
    defense = Clip(0.1, unit="client", scope=scope)
    assert defense.ways(attack) == ("",)
    posed = scene(defense).posed(attack, Known(defense))
    assert posed.distance == distance
    assert posed.client_gradient is trial_gradients, "one factor for all is not replayed"


def test_whom_knowing_does_not_help():
    assert Clip(0.1, unit="client").ways(InvertingGradients()) == ()  # a cosine is blind to scale already
    assert Clip().ways(RandomGuess()) == ()
    assert Clip().ways(Imprint()) == ()  # larger gradients are shortened to the same bound


def test_a_search_among_a_generators_pictures_clips_what_it_simulates(scene):
    assert Clip().ways(GGL()) == ("",)
    made = scene(Clip(), public=True)
    posed, plain = made.posed(GGL(transform="none"), Known(Clip())), made.posed(GGL(transform="none"))
    long = {name: 100 * g for name, g in posed.observed.items()}
    (plainly,), (clipping,) = plain.transforms, posed.transforms
    torch.testing.assert_close(plainly(long, {}, torch.arange(2)), long)
    torch.testing.assert_close(clipping(long, {}, torch.arange(2)), dict(posed.observed))


@pytest.mark.parametrize("scope", ["whole", "layer"])
def test_a_first_layer_is_fitted_to_all_rows_and_its_length_too_where_tensors_are_clipped_apart(first_layer, scope):
    known = first_layer(Clip(scope=scope))
    assert (known.combine, known.fit_scale) == ("least-squares", scope == "layer")


@pytest.mark.parametrize("unit", ["sample", "client"])
@pytest.mark.parametrize("scope", ["whole", "layer"])
def test_knowing_it_undoes_it(attacked, unit, scope):
    defense, attack = Clip(0.1, unit, scope), IDLG(steps=15, restarts=1)
    (known,) = informed_by(attack, (defense,))
    plain, adaptive = (attacked(defense, attack, "lenet-dlg:filters=4", k) for k in ((), known))
    assert adaptive.mean() > plain.mean() + 15
    assert adaptive.mean() > 25


def test_the_ratio_finds_the_length_that_clipping_apart_hides(attacked):
    defense = Clip(0.1, scope="layer")
    plain, adaptive = (attacked(defense, Linear(), "mlp:hidden=32", k) for k in ((), (Known(defense),)))
    assert plain.mean() < 20
    assert adaptive.min() > 40


def test_it_promises_nothing():
    assert Clip().guarantee() is None
