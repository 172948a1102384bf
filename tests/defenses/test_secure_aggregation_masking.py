"""Masks hide every single message and leave the sum: exactly in words, within half a step per client in values."""

import pytest
import torch
from scipy.stats import chisquare

from leakgauge.defenses.secure_aggregation import from_words, masked, masked_mean, reduced, step_of, to_words

BITS = (16, 31, 32, 48, 64)


def values(clients=5, entries=4000, scale=1.0):
    return scale * torch.randn(clients, entries, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("bits", BITS)
def test_masks_cancel_to_the_last_bit(bits):
    words = to_words(values(), step_of(16, bits, 5), bits)
    messages = masked(words, bits, "w")
    assert torch.equal(reduced(messages.sum(0), bits), reduced(words.sum(0), bits))
    assert not (messages == words).any(1).all()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("client", [0, 2, 4])
def test_a_single_message_is_uniform_in_every_byte_even_if_the_update_is_zero(bits, client):
    message = masked(torch.zeros(5, 20_000, dtype=torch.int64), bits, "w")[client]
    assert bits == 64 or (int(message.min()) >= 0 and int(message.max()) < 2**bits)
    for shift in range(0, bits - 7, 8):
        seen = ((message >> shift) & 255).bincount(minlength=256)
        assert chisquare(seen.numpy()).pvalue > 1e-5


def test_a_message_says_nothing_of_the_values_behind_it():
    zeros, large = torch.zeros(3, 20_000, dtype=torch.float64), torch.full((3, 20_000), 15.0, dtype=torch.float64)
    step = step_of(16, 32, 3)
    means = [masked(to_words(v, step, 32), 32, "w")[0].double().mean() / 2**32 for v in (zeros, large)]
    assert all(abs(m - 0.5) < 4 / (12 * 20_000) ** 0.5 for m in means)
    both = torch.stack([values()[0], masked(to_words(values(), step, 32), 32, "w")[0].double()])
    assert abs(torch.corrcoef(both)[0, 1]) < 4 / 4000**0.5


def test_all_but_one_of_the_messages_still_look_uniform():
    """The mask between the two that are left out stays in."""
    messages = masked(torch.zeros(4, 20_000, dtype=torch.int64), 32, "w")
    partial = reduced(messages[:3].sum(0), 32)
    assert chisquare((partial >> 24).bincount(minlength=256).numpy()).pvalue > 1e-5


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("clients", [2, 3, 10])
def test_the_mean_is_the_plain_one_within_half_a_step(bits, clients):
    some = values(clients).clamp(-16, 16)
    error = (masked_mean(some, 16.0, bits, "w") - some.mean(0, keepdim=True)).abs().max()
    assert error <= step_of(16, bits, clients) / 2 + 1e-14


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("clients", [2, 7, 100])
def test_a_sum_of_the_largest_values_does_not_wrap_around(bits, clients):
    for largest in (16.0, -16.0):
        full = torch.full((clients, 3), largest, dtype=torch.float64)
        torch.testing.assert_close(masked_mean(full, 16.0, bits, "w"), full[:1], rtol=1e-2, atol=0)


def test_words_are_read_with_their_sign():
    words = to_words(torch.tensor([-1.5, 0.0, 2.0]), 0.5, 16)
    assert words.tolist() == [2**16 - 3, 0, 4]
    assert from_words(words, 0.5, 16).tolist() == [-1.5, 0.0, 2.0]


def test_tensors_and_pairs_have_masks_of_their_own():
    words = torch.zeros(3, 50, dtype=torch.int64)
    assert not torch.equal(masked(words, 32, "a"), masked(words, 32, "b"))
    one, two, three = masked(words, 32, "a")
    assert not torch.equal(one, -two)
    assert not torch.equal(two, three)
