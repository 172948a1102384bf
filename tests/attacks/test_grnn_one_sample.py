"""One sample per update: the smaller generator starts where the whole one does and takes its steps."""

import pytest
import torch

from leakgauge.attacks.grnn import Generator, OneSample, draw_noise


def both(classes=10, width=16, seeds=(3, 4)):
    whole = Generator(draw_noise(seeds, 1, width).double(), (1, 8, 8), classes)
    return whole, OneSample(whole), seeds


@pytest.mark.parametrize("classes", [0, 10])
def test_it_starts_with_the_same_pictures_and_labels(classes):
    whole, small, seeds = both(classes)
    (pictures, logits), (mine, my_logits) = (net(net.start(seeds, "generator/0").double()) for net in (whole, small))
    torch.testing.assert_close(mine, pictures, rtol=1e-5, atol=1e-6)
    assert (logits is None) == (my_logits is None) == (not classes)
    if classes:
        torch.testing.assert_close(my_logits, logits, rtol=1e-5, atol=1e-6)


def test_rmsprop_takes_the_same_steps_on_both():
    """Exactly so without an epsilon; with the usual one gradients near it move a little less in the whole one."""
    whole, small, seeds = both()
    goal = torch.rand(2, 1, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ends = []
    for net in (whole, small):
        z = net.start(seeds, "generator/0").double().requires_grad_()
        optimiser = torch.optim.RMSprop([z], lr=1e-3, alpha=0.99, momentum=0.99, eps=1e-30)
        for _ in range(25):
            optimiser.zero_grad()
            pictures, logits = net(z)
            ((pictures - goal).square().sum() + torch.softmax(logits, -1)[..., 0].sum()).backward()
            optimiser.step()
        ends.append([part.detach() for part in net(z)])
    (pictures, logits), (mine, my_logits) = ends
    assert (pictures - whole(whole.start(seeds, "generator/0").double())[0]).abs().max() > 0.05  # it did move
    torch.testing.assert_close(mine, pictures, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(my_logits, logits, rtol=1e-4, atol=1e-5)


def test_it_searches_a_few_numbers_in_place_of_the_layers_of_the_noise():
    whole, small, seeds = both()
    assert small.shapes["seed.weight"] == whole.shapes["seed.weight"][1:]
    assert small.shapes["label.weight"] == (10,)
    assert small.start(seeds, "role").shape == (2, small.width)
    assert small.width < whole.width - 15 * whole.shapes["seed.bias"][0] * 16


def test_a_trial_has_its_own_noise_whoever_else_is_there():
    _, small, seeds = both()
    z = small.start(seeds, "role").double()
    together, alone = small(z)[0], small(z[1:], torch.tensor([1]))[0]
    torch.testing.assert_close(alone[0], together[1])
    torch.testing.assert_close(small.start(seeds[1:], "role"), small.start(seeds, "role")[1:])
