"""FIELD.md: rows that are parallel to one another give a first linear layer's input exactly, whatever the noise."""

import pytest
import torch

from leakgauge.attacks.linear import input_of_parallel_rows


def layer(trials=3, out=40, into=30):
    g = torch.Generator().manual_seed(0)
    x, delta = torch.rand(trials, into, generator=g), torch.randn(trials, out, generator=g)
    return x, delta[..., None] * x[:, None], delta, g


@pytest.mark.parametrize("std", [1e-3, 1.0, 1e4])
def test_half_the_rows_noised_at_any_level(std):
    x, weight, bias, g = layer()
    weight[:, 20:] += std * torch.randn(weight[:, 20:].shape, generator=g)
    torch.testing.assert_close(input_of_parallel_rows(weight, bias), x, rtol=1e-5, atol=1e-6)


def test_noise_on_a_third_of_the_biases_does_not_matter():
    x, weight, bias, g = layer()
    bias[:, ::3] += torch.randn(bias[:, ::3].shape, generator=g)
    torch.testing.assert_close(input_of_parallel_rows(weight, bias), x, rtol=1e-5, atol=1e-6)


def test_dead_rows_are_no_witnesses():
    x, weight, bias, g = layer()
    weight[:, :15], bias[:, :15] = 0.0, 0.0
    weight[:, 15:25] += torch.randn(weight[:, 15:25].shape, generator=g)
    torch.testing.assert_close(input_of_parallel_rows(weight, bias), x, rtol=1e-5, atol=1e-6)


def test_an_empty_update_gives_finite_numbers():
    assert torch.isfinite(input_of_parallel_rows(torch.zeros(1, 4, 3), torch.zeros(1, 4))).all()


def test_trials_do_not_mix():
    x, weight, bias, _ = layer()
    torch.testing.assert_close(input_of_parallel_rows(weight[1:2], bias[1:2]), x[1:2], rtol=1e-5, atol=1e-6)
