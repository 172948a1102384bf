"""METHODS G12: the Marchenko-Pastur band, the rank-3 signal, and what the released code does instead."""

import pytest
import torch

from leakgauge.defenses.sensitivity.compensation import band, compensated, eigen, layout, mean_variance

ENTRIES, Q, CLIENTS, STD = 15_826, 6.0, 10, 5e-4
WEIGHTS = [1 / CLIENTS] * CLIENTS


@pytest.fixture(scope="module")
def noise():
    """The mean over clients of noise on half of their ten slices: (1, P)."""
    g = torch.Generator().manual_seed(0)
    total = torch.zeros(1, ENTRIES)
    slice_of = torch.arange(ENTRIES) * 10 // ENTRIES
    for _ in range(CLIENTS):
        chosen = torch.randperm(10, generator=g)[:5]
        total += torch.isin(slice_of, chosen) * STD * torch.randn(1, ENTRIES, generator=g) / CLIENTS
    return total


@pytest.fixture(scope="module")
def signal():
    g = torch.Generator().manual_seed(1)
    whole = (torch.randn(386, 3, generator=g) @ torch.randn(3, 41, generator=g)).reshape(1, -1)
    return whole / whole.std() * 1.7e-4


def error(found, truth):
    return float((found - truth).norm() / truth.norm())


def test_the_layout_of_the_paper():
    v, w = layout(ENTRIES, Q)
    assert (v, w) == (386, 41)
    assert v / w == pytest.approx(9.415, abs=1e-3)


def test_a_number_without_a_divisor_nearby_is_padded():
    assert layout(19_438, Q, pad=False) == (9_719, 2)
    v, w = layout(19_438, Q)
    assert v * w >= 19_438 > v * (w - 1)
    assert v / w == pytest.approx(Q, rel=0.02)
    rows = torch.randn(2, 97, generator=torch.Generator().manual_seed(0))
    assert compensated(rows, 1e-9, Q).shape == rows.shape


def test_the_band():
    assert band(1.0, 386 / 41) == pytest.approx((0.454, 1.758), abs=1e-3)


def test_pure_noise_lies_inside_the_band():
    """The ends of a finite matrix's spectrum scatter by about one percent around the band's."""
    for seed in range(5):
        _, values, _ = eigen(torch.randn(1, ENTRIES, generator=torch.Generator().manual_seed(seed)), Q)
        low, high = band(1.0, 386 / 41)
        assert values.min() > 0.98 * low
        assert values.max() < 1.03 * high


def test_the_spectrum_of_noise_is_the_density_of_marchenko_and_pastur():
    """The share of eigenvalues up to x beside the integral of Q sqrt((x - low)(high - x)) / (2 pi s^2 x)."""
    v, w = 2000, 500
    ratio = v / w
    matrix = torch.randn(v, w, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.linalg.eigvalsh(matrix.T @ matrix / v)
    low, high = band(1.0, ratio)
    x = torch.linspace(low, high, 20_001, dtype=torch.float64)
    density = ratio * ((x - low) * (high - x)).clamp_min(0).sqrt() / (2 * torch.pi * x)
    up_to = torch.cumulative_trapezoid(density, x)
    assert float(up_to[-1]) == pytest.approx(1, abs=1e-4)
    empirical = (values[None] <= x[1:, None]).double().mean(1)
    assert float((empirical - up_to).abs().max()) < 0.01


def test_dropping_directions_takes_their_share_of_the_noise(noise, signal):
    """Of 41 directions the signal needs 3, so about 3/41 of the noise stays."""
    strong = 20 * signal
    left = compensated(strong + noise, mean_variance(STD, 0.5, WEIGHTS), Q) - strong
    assert float(left.square().sum() / noise.square().sum()) == pytest.approx(3 / 41, rel=0.3)


def test_the_variance_of_the_mean_is_the_empirical_one(noise):
    assert mean_variance(STD, 0.5, WEIGHTS) == pytest.approx(1.25e-8)
    assert float(noise.var()) == pytest.approx(1.25e-8, rel=0.05)
    assert mean_variance(STD, 0.5, WEIGHTS, "printed") == pytest.approx(1.25e-6)


def test_the_error_of_a_rank_3_signal_falls_threefold(noise, signal):
    seen = signal + noise
    kept = compensated(seen, mean_variance(STD, 0.5, WEIGHTS), Q)
    assert error(seen, signal) > 0.6
    assert error(kept, signal) < error(seen, signal) / 3


def test_the_printed_variance_is_that_of_a_sum():
    """Of m clients' noise on d of s slices, added up: m d/s std^2, whatever the weights."""
    g = torch.Generator().manual_seed(0)
    total = sum((torch.rand(200_000, generator=g) < 0.5) * STD * torch.randn(200_000, generator=g) for _ in range(10))
    assert float(total.var()) == pytest.approx(mean_variance(STD, 0.5, WEIGHTS, "printed"), rel=0.02)


def test_unequal_weights_leave_more_noise_than_equal_ones():
    g = torch.Generator().manual_seed(0)
    weights = [0.5, 0.3, 0.2]
    mean = sum(w * (torch.rand(200_000, generator=g) < 0.5) * STD * torch.randn(200_000, generator=g) for w in weights)
    assert float(mean.var()) == pytest.approx(mean_variance(STD, 0.5, weights), rel=0.02)
    assert mean_variance(STD, 0.5, weights) > mean_variance(STD, 0.5, [1 / 3] * 3)


def test_the_two_readings_differ_by_what_lies_below_the_band(noise, signal):
    """A loop over the eigenvectors, one after the other."""
    seen = 0.2 * noise + signal  # what noise is left lies below the band
    variance = mean_variance(STD, 0.5, WEIGHTS)
    matrix, values, directions = eigen(seen, Q)
    low, high = band(variance, matrix.shape[1] / matrix.shape[2])
    assert (values < low).any()
    assert (values > high).any()
    for keep in ("outside", "above"):
        total = torch.zeros_like(matrix[0])
        for value, direction in zip(values[0], directions[0].T, strict=True):
            if value > high or (keep == "outside" and value < low):
                total += torch.outer(matrix[0] @ direction, direction)
        expected = total.flatten()[:ENTRIES].to(seen.dtype)
        torch.testing.assert_close(compensated(seen, variance, Q, keep)[0], expected)


def test_the_released_variance_leaves_the_update_as_it_was(noise, signal):
    seen = signal + noise
    kept = compensated(seen, mean_variance(STD, 0.5, WEIGHTS, "printed"), Q, "outside", pad=False)
    torch.testing.assert_close(kept, seen)


def test_without_noise_nothing_happens(signal):
    assert compensated(signal, 0.0, Q) is signal


def test_rows_do_not_mix(noise, signal):
    both = torch.cat((signal + noise, 2 * signal - noise))
    variance = mean_variance(STD, 0.5, WEIGHTS)
    torch.testing.assert_close(compensated(both, variance, Q)[1:], compensated(both[1:], variance, Q))
