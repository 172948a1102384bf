"""METHODS D5, G18: key and lock never leave the client, and the picture leaks all the same."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.grnn import GRNN
from leakgauge.attacks.idlg import IDLG
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.batchnorm_only import BatchNormOnly
from leakgauge.defenses.key_lock import KeyLock, before_the_lock
from leakgauge.errors import BadInput
from leakgauge.matching.problem import inside
from leakgauge.metrics.aligned import PSNR_ALIGNED
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.models.locked_norm import draw_locks
from leakgauge.setup.plan import informed_by
from leakgauge.types import Client, Known, threat_model

SEEDS = (21, 22, 23)
TRAIN = Client(batchnorm="train")
SMALL = KeyLock(length=32, activation="sigmoid", first_lock="client")


@pytest.fixture(scope="module")
def model():
    return load_model("lenet-dlg:filters=6", load("digits").spec, seed=0)


@pytest.fixture(scope="module")
def victims():
    return draw_victims(load("digits"), trials=3, batch_size=1, seed=0)


def shared(model, batch, *defenses, local=TRAIN):
    return chain(client_step(local), *defenses)(prepared(model, *defenses), batch, SEEDS)


def seen(model, batch, defense, local=TRAIN):
    net = prepared(model, defense)
    facts = facts_about(net, batch, load("digits").spec, local, None)
    return observe(net, shared(model, batch, defense, local=local), threat_model("honest-but-curious"), facts)


def aligned(batch, result):
    return score(batch, result, load("digits").spec, (PSNR_ALIGNED,)).records["psnr_aligned"].median()


def test_no_tensor_of_key_or_lock_is_in_the_upload(model, victims):
    update = shared(model, victims, SMALL)
    names = {"conv1.layer.weight", "conv1.layer.bias", "conv2.weight", "conv2.bias", "conv3.weight", "conv3.bias"}
    assert update.tensors.keys() == names | {"fc.weight", "fc.bias"}
    assert update.buffers == {}
    several = shared(model, victims, SMALL, local=Client("fedavg", epochs=2, batchnorm="train"))
    assert not any("key" in name or name.endswith((".lock.weight", ".lock.bias")) for name in several.buffers)


def test_the_gradient_is_that_of_the_network_with_the_clients_own_lock(model, victims):
    update, net = shared(model, victims, SMALL), SMALL.prepare(model).train()
    drawn = draw_locks(SEEDS, net.conv1.lock, "default")
    for t in range(3):
        for part, values in drawn.items():
            setattr(net.conv1.lock, part, values[t])
        loss = torch.nn.functional.cross_entropy(net(victims.inputs[t]), victims.labels[t])
        expected = torch.autograd.grad(loss, list(net.parameters()))
        for (name, _), gradient in zip(net.named_parameters(), expected, strict=True):
            torch.testing.assert_close(update.tensors[name][t], gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    ("told", "parts"),
    [("nothing", []), ("key", ["key"]), ("lock", ["bias", "weight"]), ("both", ["bias", "key", "weight"])],
)
def test_the_attacker_is_told_exactly_what_the_sharing_case_says(model, victims, told, parts):
    observation = seen(model, victims, KeyLock(length=32, told=told))
    assert sorted(observation.update.buffers) == [f"conv1.lock.{part}" for part in parts]
    assert not any("lock" in name for name in observation.update.tensors)
    assert observation.take([1]).update.buffers.keys() == observation.update.buffers.keys()


def test_by_default_all_clients_begin_with_the_servers_lock_and_a_key_of_their_own(model, victims):
    """Ren 2023, section 5.2.4: the server makes the model with the lock in it and hands it out."""
    defense = KeyLock(length=32)
    net = prepared(model, defense).train()
    again = prepared(model, defense)
    assert torch.equal(net.conv1.lock.weight, again.conv1.lock.weight)
    assert net.conv1.lock.weight.abs().max() > 0
    assert not torch.equal(net.conv1.lock.weight, prepared(model, KeyLock(length=32, lock_seed=1)).conv1.lock.weight)
    update = shared(model, victims, defense)
    keys = draw_locks(SEEDS, net.conv1.lock, "default")["key"]
    for t in range(3):
        net.conv1.lock.put({"key": keys[t]})
        loss = torch.nn.functional.cross_entropy(net(victims.inputs[t]), victims.labels[t])
        expected = torch.autograd.grad(loss, list(net.parameters()))
        for (name, _), gradient in zip(net.named_parameters(), expected, strict=True):
            torch.testing.assert_close(update.tensors[name][t], gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("told", ["gradient", "key-and-gradient"])
def test_a_shared_gradient_of_the_lock_is_that_of_a_plain_loop(model, victims, told):
    defense = KeyLock(length=32, activation="sigmoid", told=told)
    observation = seen(model, victims, defense)
    net, lock_names = prepared(model, defense).train(), ["conv1.lock.weight", "conv1.lock.bias"]
    assert sorted(observation.update.buffers) == (["conv1.lock.key"] if "key" in told else [])
    keys = draw_locks(SEEDS, net.conv1.lock, "default")["key"]
    for t in range(3):
        net.conv1.lock.put({"key": keys[t]})
        loss = torch.nn.functional.cross_entropy(net(victims.inputs[t]), victims.labels[t])
        for name, expected in zip(
            lock_names, torch.autograd.grad(loss, [net.get_parameter(n) for n in lock_names]), strict=True
        ):
            torch.testing.assert_close(observation.update.tensors[name][t], expected, rtol=1e-4, atol=1e-6)
            assert expected.abs().max() > 0


@pytest.mark.parametrize("told", ["nothing", "key", "gradient"])
def test_the_first_round_keeps_nothing_from_who_uses_what_is_shared(model, victims, told):
    """The lock is known: with the key, shared or read off the gradient, the whole network is."""
    defense = KeyLock(length=32, told=told)
    found = IDLG(steps=40, restarts=1)(seen(model, victims, defense), SEEDS, known=(Known(defense, "joint"),))
    assert aligned(victims, found) > 20


@pytest.mark.parametrize("attack", [DLG(), GRNN()], ids=lambda a: a.name)
def test_the_attacker_who_knows_searches_for_scale_and_shift(scene, attack):
    assert SMALL.ways(attack) == ("joint", "behind the lock")
    made = scene(SMALL, local=TRAIN, model="lenet-dlg:filters=6")
    joint, behind = (made.posed(attack, Known(SMALL, way)) for way in SMALL.ways(attack))
    for posed in (joint, behind):
        assert (posed.stretch, posed.begin) == (True, "patterned-4")
        assert list(posed.hidden) == ["conv1.lock.shift"]
        assert posed.width == made.posed(attack).width + 12  # scale and shift of six channels
    assert joint.observed.keys() == made.seen.update.tensors.keys()
    assert joint.observed.keys() - behind.observed.keys() == {"conv1.layer.weight", "conv1.layer.bias"}


def test_the_weaker_ways_are_the_same_without_the_stretching(scene):
    made = scene(SMALL, local=TRAIN, model="lenet-dlg:filters=6")
    assert SMALL.weaker_ways(DLG()) == ("joint, not stretched", "behind the lock, not stretched")
    for way, weaker in zip(SMALL.ways(DLG()), SMALL.weaker_ways(DLG()), strict=True):
        one, other = (made.posed(DLG(), Known(SMALL, name)) for name in (way, weaker))
        assert (other.stretch, other.begin) == (False, "")
        assert (other.hidden, other.observed.keys()) == (one.hidden, one.observed.keys())


def test_a_first_layer_is_fitted_to_all_rows_and_a_floor_has_nothing_to_know(first_layer):
    assert first_layer(SMALL).combine == "least-squares"
    assert SMALL.ways(RandomGuess()) == ()


def test_knowing_beats_not_knowing(model, victims):
    attack = IDLG(steps=25, restarts=1)
    observation = seen(model, victims, KeyLock(length=32, activation="sigmoid", init="uniform", first_lock="client"))
    plain, joint, behind = (
        aligned(victims, attack(observation, SEEDS, known=known)) for known in ((), *informed_by(attack, (SMALL,)))
    )
    assert joint > plain + 5
    assert behind > plain + 2


def test_the_ablation_leaks_the_picture_but_for_its_scale(model, victims):
    """BatchNorm alone stops the raw score, not the picture."""
    attack, digits = IDLG(steps=25, restarts=1), load("digits").spec
    result = attack(seen(model, victims, BatchNormOnly()), SEEDS)
    scores = score(victims, result, digits, (PSNR_ALIGNED,)).records
    raw = score(victims, result, digits).records["psnr"].median()
    assert scores["psnr_aligned"].median() > 25
    assert raw < 15


def test_grnn_searches_with_a_generator(model, victims):
    observation = seen(model, victims, SMALL)
    result = GRNN(steps=3)(observation, SEEDS, known=(Known(SMALL, "joint"),))
    assert result.inputs.shape == victims.inputs.shape
    assert (result.inputs.amin((1, 2, 3, 4)) == 0).all()


def test_a_first_dense_layer_gives_its_input_away_as_ever(victims):
    net = load_model("mlp:hidden=16", load("digits").spec, seed=0)
    result = Linear()(seen(net, victims, SMALL, Client()), SEEDS)
    assert (result.inputs - victims.inputs).abs().max() < 1e-4


def test_settings_outside_their_range_are_refused(model):
    with pytest.raises(BadInput, match="key-lock: length must be at least 1"):
        KeyLock(length=0)
    with pytest.raises(BadInput, match="key-lock: told must be one of nothing, key, gradient, key-and-gradient, lock"):
        KeyLock(told="all")
    with pytest.raises(BadInput, match="key-lock: first_lock must be one of server, client"):
        KeyLock(first_lock="nobody")
    with pytest.raises(BadInput, match="key-lock: lock_seed must be at least 0"):
        KeyLock(lock_seed=-1)
    with pytest.raises(
        BadInput, match=r"key-lock: told must be without gradient where rounds is above 1.*leave rounds out"
    ):
        KeyLock(rounds=2, told="gradient")
    with pytest.raises(BadInput, match="layer must be one of"):
        KeyLock(layer="conv7").prepare(model)


def test_it_promises_nothing():
    assert KeyLock().guarantee() is None


def test_of_several_rounds_the_first_is_the_same_and_all_are_attacked(model, victims):
    """Weights move between the rounds; samples, key and lock stay."""
    three = KeyLock(length=32, activation="sigmoid", rounds=3, first_lock="client")
    once, often = (shared(model, victims, defense).tensors for defense in (SMALL, three))
    assert len(often) == 3 * len(once)
    for name, tensor in once.items():
        torch.testing.assert_close(often[f"rounds.0.{name}"], tensor, rtol=1e-4, atol=1e-6)
        if name.endswith("weight"):  # a bias in front of the normalisation has no gradient
            assert not torch.allclose(often[f"rounds.1.{name}"], tensor)
    found = IDLG(steps=20, restarts=1)(seen(model, victims, three), SEEDS, known=(Known(three, "joint"),))
    assert torch.equal(found.labels, victims.labels)
    assert aligned(victims, found) > 20


def test_layers_in_front_of_the_lock_are_left_out_of_every_round(model):
    net = KeyLock(length=32, rounds=2).prepare(model)
    names = [name for name, _ in net.named_parameters()]
    left_out = inside(before_the_lock(net), names)
    assert left_out == {n for n in names if ".conv1." in n}
    assert len(left_out) == 4
