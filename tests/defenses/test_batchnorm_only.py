"""The ablation has key-lock's network and none of its secrets."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.batchnorm_only import BatchNormOnly
from leakgauge.defenses.key_lock import KeyLock
from leakgauge.matching.problem import stretched
from leakgauge.models import load_model
from leakgauge.types import Client, Known, Reconstruction

TRAIN = Client(batchnorm="train")


def test_it_is_the_locked_network_with_an_open_lock():
    model = load_model("lenet-dlg:filters=4", load("digits").spec, 0)
    plain, locked = BatchNormOnly().prepare(model).train(), KeyLock(first_lock="client").prepare(model).train()
    locked.conv1.lock.bias = torch.tensor([1.0] * 4 + [0.0] * 4)
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(plain(x), locked(x))
    assert type(model.conv1) is nn.Conv2d


def test_its_scale_and_shift_are_learned_and_shared():
    net = BatchNormOnly().prepare(load_model("lenet-dlg:filters=4", load("digits").spec, 0))
    batch = draw_victims(load("digits"), 2, 1, 0)
    update = chain(client_step(Client(batchnorm="train")), BatchNormOnly())(net, batch, (0, 1))
    assert update.tensors["conv1.norm.weight"].shape == (2, 4)


def test_a_brighter_picture_leaves_the_update_almost_as_it_was():
    """In train mode the scale of one sample is invisible; the border, padded with zeros, shows some of an offset."""
    net = BatchNormOnly().prepare(load_model("lenet-dlg:filters=4", load("digits").spec, 0))
    batch = draw_victims(load("digits"), 2, 1, 0)
    half = type(batch)(batch.inputs / 2, batch.labels)
    step = client_step(Client(batchnorm="train"))
    one, other = step(net, batch, (0, 1)), step(net, half, (0, 1))
    torch.testing.assert_close(one.tensors["fc.weight"], other.tensors["fc.weight"], rtol=1e-2, atol=1e-4)


def test_the_attacker_who_knows_stretches(scene, first_layer):
    assert BatchNormOnly().ways(DLG()) == ("",)
    posed = scene(BatchNormOnly(), local=TRAIN).posed(DLG(), Known(BatchNormOnly()))
    assert (posed.stretch, posed.begin) == (True, "patterned-4")
    assert first_layer(BatchNormOnly()).combine == "least-squares"
    assert BatchNormOnly().ways(RandomGuess()) == ()


@pytest.mark.parametrize(("init", "as_if"), [("random", "patterned-4"), ("dark", "dark")])
def test_a_search_that_would_begin_at_random_begins_smoother(scene, init, as_if):
    made = scene(BatchNormOnly(), local=TRAIN)
    knowing, plain = DLG(init=init), DLG(init=as_if)
    posed, other = made.posed(knowing, Known(BatchNormOnly())), made.posed(plain)
    begun = [a.start(p, made.seeds)(made.seeds, 0) for a, p in ((knowing, posed), (plain, other))]
    assert torch.equal(*begun)


def found(inputs):
    """What a search has found, with nothing else to say about it."""
    ones = torch.ones(len(inputs))
    return Reconstruction(inputs, None, ones, ones, ones)


def normalised(scene, batchnorm="train", samples=1):
    return scene(BatchNormOnly(), local=Client(batchnorm=batchnorm), samples=samples).matching()


def test_each_picture_uses_the_whole_range(scene):
    x = torch.randn(3, 1, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 7 - 2
    problem = normalised(scene)
    out = stretched(found(x), problem).inputs
    assert torch.equal(out.amin((1, 2, 3, 4)), torch.zeros(3))
    torch.testing.assert_close(out.amax((1, 2, 3, 4)), torch.ones(3))
    torch.testing.assert_close(stretched(found(3 * x + 1), problem).inputs, out)


def test_a_constant_picture_stays(scene):
    x = torch.full((1, 1, 1, 8, 8), 0.3)
    assert torch.equal(stretched(found(x), normalised(scene)).inputs, x)


def test_every_answer_is_stretched(scene):
    x = torch.rand(2, 1, 1, 8, 8)
    two = dataclasses.replace(found(x), answers=torch.stack((x, x / 2), 1), answer_names=("one", "two"))
    out = stretched(two, normalised(scene))
    assert torch.equal(out.answers[:, 0], out.inputs)
    torch.testing.assert_close(out.answers[:, 1], out.inputs)


def test_it_stays_out_where_the_scale_shows(scene):
    x = torch.rand(2, 1, 1, 8, 8)
    assert stretched(found(x), normalised(scene, "eval")).inputs is x
    assert stretched(found(x), normalised(scene, samples=2)).inputs is x


def test_what_is_reported_is_stretched(scene):
    made = scene(BatchNormOnly(), local=TRAIN)
    plain, knowing = (DLG(steps=2, restarts=1)(made.seen, made.seeds, known=k) for k in ((), (Known(BatchNormOnly()),)))
    assert (knowing.inputs.amin((1, 2, 3, 4)) == 0).all()
    assert (knowing.inputs.amax((1, 2, 3, 4)) == 1).all()
    assert not (plain.inputs.amin((1, 2, 3, 4)) == 0).all()


def test_another_layer_can_be_named():
    net = BatchNormOnly(layer="conv2").prepare(load_model("lenet-dlg:filters=4", load("digits").spec, 0))
    assert isinstance(net.conv2.norm, nn.BatchNorm2d)
