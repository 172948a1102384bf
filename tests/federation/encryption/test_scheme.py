"""What both schemes must hold to: encrypted sums equal plain ones, and nothing wrong is opened in silence."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from leakgauge import catalog
from leakgauge.errors import BadInput, Untrusted
from leakgauge.federation.encryption.scheme import whole_weights

LARGEST = 64.0
_VALUES = st.one_of(
    st.floats(-LARGEST, LARGEST),
    st.floats(-1e-6, 1e-6),
    st.sampled_from([0.0, -0.0, LARGEST, -LARGEST, np.nextafter(LARGEST, 0), -np.nextafter(LARGEST, 0)]),
)


def sealed(keys, rows, about="round 1"):
    return [keys.seal(row, client, about) for client, row in enumerate(rows)]


def rows_of(count=3, entries=20, seed=0):
    return np.random.default_rng(seed).normal(size=(count, entries))


def flipped(message, part=0, place=200):
    changed = bytearray(message.parts[part])
    changed[place % len(changed)] ^= 4
    parts = (*message.parts[:part], bytes(changed), *message.parts[part + 1 :])
    return dataclasses.replace(message, parts=parts)


_VECTORS = st.integers(1, 5).flatmap(
    lambda clients: st.tuples(
        st.integers(1, 12).flatmap(lambda entries: arrays(np.float64, (clients, entries), elements=_VALUES)),
        st.lists(st.floats(0, 1), min_size=clients, max_size=clients).filter(lambda s: sum(s) > 1e-6),
    )
)


def sums_agree(scheme, keys, rows, shares):
    whole = whole_weights(shares, scheme.pieces)
    opened = keys.open(keys.adder().weighted_sum(sealed(keys, rows), whole))
    assert np.abs(opened - np.array(whole) @ rows / scheme.pieces).max() <= scheme.error_bound()


@settings(max_examples=1000, deadline=None)
@given(_VECTORS)
def test_a_paillier_weighted_sum_equals_the_plain_one(demo_keys, drawn):
    sums_agree(demo_keys.scheme, demo_keys, *drawn)


@settings(max_examples=100, deadline=None)  # a ciphertext is 235 kB however short the vector
@given(_VECTORS)
def test_a_ckks_weighted_sum_equals_the_plain_one(ckks_keys, drawn):
    sums_agree(ckks_keys.scheme, ckks_keys, *drawn)


def test_a_fresh_message_opens_as_it_was(scheme, keys):
    row = rows_of(1, 5000)[0]
    message = keys.seal(row, 4, "round 9")
    assert np.abs(keys.open(message) - row).max() <= scheme.error_bound()
    assert abs(message.bytes / scheme.bytes_up(5000) - 1) < 0.01
    assert message.parts != keys.seal(row, 4, "round 9").parts  # the same numbers never look the same


@pytest.mark.parametrize("bad", [np.nextafter(LARGEST, 100), -65.0, np.nan, np.inf])
def test_a_value_beyond_the_guard_is_refused(scheme, keys, bad):
    with pytest.raises(BadInput, match="overflow guard"):
        keys.seal(np.array([0.0, bad]), 0, "round 1")


def test_weights_beyond_the_guard_are_refused(scheme, keys):
    messages = sealed(keys, rows_of(2))
    for weights in ([scheme.pieces, 1], [1], [0, 0], [-1, 2], [0.5, 0.5]):
        with pytest.raises(BadInput, match="more would overflow"):
            keys.adder().weighted_sum(messages, weights)


def test_another_key_neither_adds_nor_opens(scheme, keys):
    other = scheme.keys()
    messages = sealed(keys, rows_of(2))
    with pytest.raises(Untrusted, match="another key"):
        other.open(messages[0])
    with pytest.raises(Untrusted, match="another key"):
        keys.adder().weighted_sum([messages[0], other.seal(rows_of(1)[0], 1, "round 1")], [1, 1])


def test_a_ciphertext_of_another_key_under_our_name_is_found_out(scheme, keys):
    foreign = scheme.keys().seal(rows_of(1)[0], 1, "round 1")
    disguised = dataclasses.replace(foreign, key=keys.fingerprint)
    with pytest.raises(Untrusted):
        keys.open(disguised)
    with pytest.raises(Untrusted):
        keys.open(keys.adder().weighted_sum([sealed(keys, rows_of(1))[0], disguised], [1, 1]))


@pytest.mark.parametrize("place", [0, 1, 2, 7, 30, 500, 5000, 50_000])
def test_a_tampered_ciphertext_is_found_out(keys, place):
    messages = sealed(keys, rows_of(2))
    with pytest.raises(Untrusted):
        keys.open(flipped(messages[0], place=place))
    with pytest.raises(Untrusted):
        keys.open(keys.adder().weighted_sum([flipped(messages[0], place=place), messages[1]], [3, 4]))
    total = keys.adder().weighted_sum(messages, [3, 4])
    with pytest.raises(Untrusted):
        keys.open(flipped(total, place=place))


def test_other_weights_than_announced_are_found_out(keys):
    """A server that swaps two clients' weights, leaves one out, or answers with an old round."""
    messages = sealed(keys, rows_of(2))
    total = keys.adder().weighted_sum(messages, [30, 10])
    for claimed in (((0, 10), (1, 30)), ((0, 40),), ((1, 30), (0, 10))):
        with pytest.raises(Untrusted, match="check value"):
            keys.open(dataclasses.replace(total, weights=claimed))
    with pytest.raises(Untrusted, match="check value"):
        keys.open(dataclasses.replace(total, about="round 2"))


def test_what_does_not_belong_together_is_not_added(keys):
    messages = sealed(keys, rows_of(2))
    adder = keys.adder()
    for other in (
        keys.seal(rows_of(1)[0], 1, "round 2"),
        keys.seal(rows_of(1, 7)[0], 1, "round 1"),
        keys.seal(rows_of(1)[0], 0, "round 1"),
        adder.weighted_sum(messages, [1, 1]),
        dataclasses.replace(messages[1], parts=messages[1].parts[:-1]),
    ):
        with pytest.raises(Untrusted):
            keys.open(adder.weighted_sum([messages[0], other], [1, 1]))


def test_a_shortened_or_overweight_sum_does_not_open(scheme, keys):
    total = keys.adder().weighted_sum(sealed(keys, rows_of(2)), [1, 1])
    with pytest.raises(Untrusted, match="wrong number"):
        keys.open(dataclasses.replace(total, parts=total.parts[:-1]))
    with pytest.raises(Untrusted, match="weight"):
        keys.open(dataclasses.replace(total, weights=((0, scheme.pieces + 1),)))


def test_the_server_gets_nothing_that_opens(keys):
    held = vars(keys.adder())
    assert not {"p", "q", "h_p", "secret", "checks"} & held.keys()
    context = held.get("context")
    assert context is None or not context.is_private()


def test_schemes_say_who_holds_what_and_are_found():
    assert list(catalog.find("encryptions")) == ["ckks", "paillier"]
    for cls in catalog.find("encryptions").values():
        said = " ".join(cls().trust())
        assert "Any client together with the server reads every client's update" in said
        assert f"--encryption {cls.name}" in cls.__doc__


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(lambda s: sum(s) > 1e-9), st.integers(1, 2**20))
def test_they_sum_exactly_and_are_less_than_one_away(shares, pieces):
    whole = whole_weights(shares, pieces)
    assert sum(whole) == pieces
    assert min(whole) >= 0
    assert np.abs(np.array(whole) - np.array(shares) / np.sum(shares) * pieces).max() < 1 + 1e-6


def test_three_equal_clients_lose_nothing():
    """Rounding each by itself makes 99 of 100: the step would shrink by one percent."""
    assert whole_weights([1, 1, 1], 100) == [34, 33, 33]


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf")]])
def test_what_is_no_weighting_is_refused(shares):
    with pytest.raises(BadInput, match="non-negative"):
        whole_weights(shares, 10)
