"""The ablation has key-lock's network and none of its secrets."""

import torch
from torch import nn

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.batchnorm_only import BatchNormOnly
from leakgauge.defenses.key_lock import KeyLock
from leakgauge.models import load_model
from leakgauge.types import LocalTraining


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
    update = chain(client_step(LocalTraining(batchnorm="train")), BatchNormOnly())(net, batch, (0, 1))
    assert update.tensors["conv1.norm.weight"].shape == (2, 4)


def test_a_brighter_picture_leaves_the_update_almost_as_it_was():
    """In train mode the scale of one sample is invisible; the border, padded with zeros, shows some of an offset."""
    net = BatchNormOnly().prepare(load_model("lenet-dlg:filters=4", load("digits").spec, 0))
    batch = draw_victims(load("digits"), 2, 1, 0)
    half = type(batch)(batch.inputs / 2, batch.labels)
    step = client_step(LocalTraining(batchnorm="train"))
    one, other = step(net, batch, (0, 1)), step(net, half, (0, 1))
    torch.testing.assert_close(one.tensors["fc.weight"], other.tensors["fc.weight"], rtol=1e-2, atol=1e-4)


def test_the_attacker_who_knows_stretches():
    assert BatchNormOnly().adaptive(DLG()) == (DLG(stretch=True, init="patterned-4"),)
    assert BatchNormOnly().adaptive(DLG(init="dark")) == (DLG(stretch=True, init="dark"),)
    assert BatchNormOnly().adaptive(Linear()) == (Linear(combine="least-squares"),)
    assert BatchNormOnly().adaptive(RandomGuess()) == ()


def test_another_layer_can_be_named():
    net = BatchNormOnly(layer="conv2").prepare(load_model("lenet-dlg:filters=4", load("digits").spec, 0))
    assert isinstance(net.conv2.norm, nn.BatchNorm2d)
