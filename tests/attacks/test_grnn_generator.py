"""GRNN's generator: the layers of torch.nn, one set per trial, with torch's initialisation (A5, G6)."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.attacks.grnn import Generator, draw_noise, picture_shape
from leakgauge.errors import NotApplicable
from leakgauge.types import DataSpec


class Block(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.conv = nn.Conv2d(into, 2 * out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(2 * out)

    def forward(self, x):
        return F.glu(self.norm(self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))), 1)


class Published(nn.Module):
    """The generator as METHODS.md describes it, for one victim."""

    def __init__(self, side, channels, classes, width=128):
        super().__init__()
        blocks = side.bit_length() - 4  # log2(side) - 3
        self.seed = nn.ConvTranspose2d(width, 2 * 32 * 2**blocks, 4)
        widths = [32 * 2**n for n in range(blocks, -1, -1)] + [channels]
        for n, (into, out) in enumerate(itertools.pairwise(widths)):
            setattr(self, f"block{n}", Block(into, out))
        self.label = nn.Linear(width, classes)
        self.blocks = blocks + 1

    def forward(self, noise):
        x = F.glu(self.seed(noise[..., None, None]), 1)
        for n in range(self.blocks):
            x = getattr(self, f"block{n}")(x)
        return torch.sigmoid(x), self.label(noise)


def generator(picture=(3, 32, 32), classes=10, trials=2, samples=3, width=128):
    return Generator(draw_noise(range(trials), samples, width), picture, classes)


def flat(network):
    return nn.utils.parameters_to_vector(network.parameters()).detach()


@pytest.mark.parametrize("side", [8, 16, 32, 64, 128, 256])
def test_parameters_have_the_published_shapes_at_every_side(side):
    with torch.device("meta"):
        published = Published(side, 3, 10)
    assert generator((3, side, side)).shapes == {n: tuple(p.shape) for n, p in published.named_parameters()}


def test_at_32_px_channels_go_128_64_32_3():
    shapes = generator().shapes
    assert shapes["seed.weight"] == (128, 256, 4, 4)
    assert [shapes[f"block{n}.conv.weight"] for n in range(3)] == [(128, 128, 3, 3), (64, 64, 3, 3), (6, 32, 3, 3)]
    assert "block3.conv.weight" not in shapes


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (32, 3)])
def test_each_trial_is_what_the_published_network_gives(side, channels):
    net = generator((channels, side, side))
    networks = [Published(side, channels, 10) for _ in range(2)]
    pictures, logits = net(torch.stack([flat(network) for network in networks]))
    assert pictures.shape == (2, 3, channels, side, side)
    for t, network in enumerate(networks):
        theirs, their_logits = network(net.noise[t])
        torch.testing.assert_close(pictures[t], theirs, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(logits[t], their_logits, rtol=1e-4, atol=1e-5)


def test_it_starts_as_torch_initialises():
    published, net = Published(32, 3, 10), generator()
    drawn = net.start((5,), "generator")[0].split([p.numel() for p in published.parameters()])
    for (name, theirs), ours in zip(published.named_parameters(), drawn, strict=True):
        if "norm" in name:
            assert torch.equal(ours, theirs.detach().flatten()), name
        elif len(ours) > 200:
            assert float(ours.std()) == pytest.approx(float(theirs.detach().std()), rel=0.2), name
            assert float(ours.abs().max()) == pytest.approx(float(theirs.detach().abs().max()), rel=0.1), name
        assert ours.abs().max() <= 1


def test_a_trial_has_its_own_weights_whoever_else_is_there():
    net = generator()
    torch.testing.assert_close(net.start((7, 8), "role")[1:], net.start((8,), "role"))
    z = net.start((7, 8), "role")
    together, alone = net(z)[0], net(z[1:], torch.tensor([1]))[0]
    torch.testing.assert_close(alone[0], together[1], rtol=1e-4, atol=1e-5)


def test_without_a_label_branch_there_are_no_logits():
    net = generator(classes=0)
    assert "label.weight" not in net.shapes
    assert net(net.start((0, 1), "role"))[1] is None


@pytest.mark.parametrize(
    ("shape", "blocks"), [((1, 5, 5), 1), ((1, 8, 8), 1), ((1, 28, 28), 3), ((3, 48, 33), 4), ((3, 224, 224), 6)]
)
def test_other_shapes_are_cut_out_of_the_next_power_of_two(shape, blocks):
    net = generator(shape, trials=1, samples=1, width=4)
    assert net.blocks == blocks
    if max(shape) < 64:
        assert net(net.start((0,), "role"))[0].shape == (1, 1, *shape)


def test_the_cut_is_from_the_middle():
    whole, cut = generator((1, 16, 16), trials=1), generator((1, 12, 10), trials=1)
    z = whole.start((0,), "role")
    assert torch.equal(cut(z)[0], whole(z)[0][..., 2:14, 3:13])


@pytest.mark.parametrize("shape", [(30,), (3, 257, 257)])
def test_what_cannot_be_generated_is_refused(shape):
    with pytest.raises(NotApplicable, match="grnn generates pictures"):
        picture_shape(DataSpec("own", shape, 2, "image"))


def test_it_can_learn_one_picture_by_heart():
    """In pixel space, where there is no gradient to match: the capacity is there."""
    net = generator((1, 8, 8), classes=0, trials=1, samples=1)
    picture = torch.rand(1, 1, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    z = net.start((0,), "role").requires_grad_()
    optimiser = torch.optim.Adam([z], lr=3e-3)
    for _ in range(300):
        optimiser.zero_grad()
        error = (net(z)[0] - picture).square().mean()
        error.backward()
        optimiser.step()
    assert float(error.detach()) < 1e-3
