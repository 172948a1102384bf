"""Total variation by hand."""

import torch

from leakgauge.matching.priors import total_variation


def test_a_flat_picture_has_none():
    assert total_variation(torch.full((2, 1, 1, 4, 4), 0.3)).abs().max() < 1e-6


def test_one_edge_counts_its_length_times_its_height():
    picture = torch.zeros(1, 1, 1, 4, 4)
    picture[..., 2:] = 0.5  # one vertical edge, 4 pixels long
    torch.testing.assert_close(total_variation(picture), torch.tensor([4 * 0.5]), rtol=0.03, atol=0)


def test_trials_are_summed_apart_and_samples_together():
    g = torch.Generator().manual_seed(0)
    pictures = torch.rand(3, 2, 1, 5, 5, generator=g)
    whole = total_variation(pictures)
    assert whole.shape == (3,)
    parts = total_variation(pictures[:, :1]) + total_variation(pictures[:, 1:])
    torch.testing.assert_close(whole, parts)


def test_tables_have_none():
    assert total_variation(torch.rand(2, 3, 30)).tolist() == [0.0, 0.0]


def test_it_can_be_differentiated_at_a_flat_picture():
    flat = torch.zeros(1, 1, 1, 3, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(total_variation(flat).sum(), flat)
    assert torch.isfinite(slope).all()
