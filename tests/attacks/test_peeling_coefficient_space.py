"""The space of a batch's coefficients holds every sample's own vector and no mixture's."""

import torch

from leakgauge.attacks.peeling import coefficient_space


def batch(samples=6, units=80, entries=50, seed=0):
    """Samples X (N, D), coefficients C (N, H) with zeros where units are off, and the layer's gradients."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(samples, entries, generator=g, dtype=torch.float64)
    on = torch.rand(samples, units, generator=g) < 0.5
    c = torch.randn(samples, units, generator=g, dtype=torch.float64) * on
    return x, c, on, c.T @ x, c.sum(0)


def nowhere(c):
    return torch.zeros_like(c, dtype=torch.bool)


def test_own_vectors_are_inside_and_others_outside():
    _, c, _, weight, bias = batch()
    space = coefficient_space(weight, bias, 6)
    assert space is not None
    assert space.holds(c, nowhere(c)).all()
    _, other, _, _, _ = batch(seed=1)
    assert not space.holds(other, nowhere(c)).any()
    assert not space.holds(c * (torch.arange(80) % 3 > 0), nowhere(c)).any(), "wrong zeros"


def test_a_unit_at_its_kink_may_be_on_or_off():
    _, c, on, weight, bias = batch()
    space = coefficient_space(weight, bias, 6)
    flipped, kinks = c.clone(), nowhere(c)
    for k in range(6):
        unit = int(torch.nonzero(on[k])[0])
        flipped[k, unit], kinks[k, unit] = 0, True
    assert not space.holds(flipped, nowhere(c)).any()
    assert space.holds(flipped, kinks).all()


def test_the_zeros_alone_give_the_vector_up_to_scale():
    _, c, on, weight, bias = batch()
    vectors, lone = coefficient_space(weight, bias, 6).with_zeros(~on)
    assert lone.all()
    cosine = torch.nn.functional.cosine_similarity(vectors, c).abs()
    torch.testing.assert_close(cosine, torch.ones(6, dtype=torch.float64))


def test_too_few_zeros_and_wrong_ones_determine_nothing():
    _, _, on, weight, bias = batch()
    space = coefficient_space(weight, bias, 6)
    few = torch.zeros_like(on)
    few[:, :7] = ~on[:, :7]
    assert not space.with_zeros(few)[1].any()
    assert not space.with_zeros(on)[1].any()


def test_there_is_no_space_under_noise_for_twins_or_for_more_samples_than_room():
    x, c, _, weight, bias = batch()
    g = torch.Generator().manual_seed(2)
    assert coefficient_space(weight + 0.1 * torch.randn(weight.shape, generator=g), bias, 6) is None
    assert coefficient_space(c[:5].T @ x[:5], c[:5].sum(0), 6) is None
    assert coefficient_space(weight, bias, 5) is None, "one sample more than claimed"
    assert coefficient_space(weight, bias, 60) is None
