"""The published network: its size, its steps, and weights by the seed alone."""

import torch

from leakgauge.lab.words.network import CRNN, build


def test_the_published_size():
    model = CRNN()
    total = sum(t.numel() for t in model.state_dict().values() if t.is_floating_point())
    assert abs(total - 8.72e6) < 0.02e6


def test_a_step_for_every_four_columns():
    model = build(2, seed=0).eval()
    for width in (64, 100):
        assert model(torch.rand(2, 3, 32, width)).shape == (2, width // 4, 37)


def test_weights_depend_on_the_seed_and_nothing_else():
    first = build(2, seed=3)
    torch.rand(5)
    again, other = build(2, seed=3), build(2, seed=4)
    pairs = list(zip(first.parameters(), again.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
