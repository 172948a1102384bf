"""Units that are on for everybody tell what the others left out."""

import torch

from leakgauge.attacks.peeling import off_rows

SAMPLES, UNITS, ENTRIES, WIDTH = 12, 80, 30, 5


def layer(always=30, seed=0):
    """Gradients of a layer whose first units are on for all samples, V, and the rows over those who leave units off."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(SAMPLES, ENTRIES, generator=g, dtype=torch.float64)
    back = torch.randn(SAMPLES, WIDTH, generator=g, dtype=torch.float64)
    outgoing = torch.randn(WIDTH, UNITS, generator=g, dtype=torch.float64)
    on = torch.rand(SAMPLES, UNITS, generator=g) < 0.5
    on[:, :always] = True
    full = back @ outgoing
    kept, left = full * on, full * ~on
    return kept.T @ x, kept.sum(0), outgoing, left.T @ x, left.sum(0)


def test_rows_over_the_samples_that_leave_a_unit_off():
    weight, bias, outgoing, off, off_bias = layer()
    likely = -torch.arange(UNITS, dtype=torch.float64)
    found, found_bias, size = off_rows(weight, bias, outgoing, likely)
    torch.testing.assert_close(found, off, rtol=0, atol=1e-9)
    torch.testing.assert_close(found_bias, off_bias, rtol=0, atol=1e-9)
    assert (size >= bias.abs()).all()


def test_a_few_wrong_guesses_among_the_likely_do_no_harm():
    weight, bias, outgoing, off, _ = layer()
    likely = -torch.arange(UNITS, dtype=torch.float64)
    likely[[40, 50, 60]] = 1.0
    torch.testing.assert_close(off_rows(weight, bias, outgoing, likely)[0], off, rtol=0, atol=1e-9)


def test_nothing_where_too_few_are_always_on_or_the_update_was_changed():
    likely = -torch.arange(UNITS, dtype=torch.float64)
    weight, bias, outgoing, _, _ = layer(always=4)
    assert off_rows(weight, bias, outgoing, likely) is None
    weight, bias, outgoing, _, _ = layer()
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    assert off_rows(weight + 0.1 * noise, bias, outgoing, likely) is None
    assert off_rows(weight[:6], bias[:6], outgoing[:, :6], likely[:6]) is None
