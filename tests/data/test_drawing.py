import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data import Dataset, draw_others, draw_victims, load, public_batch
from leakgauge.errors import BadInput
from leakgauge.types import DataSpec


def numbered(labels):
    """A data set whose samples tell their own number."""
    samples = torch.arange(len(labels), dtype=torch.float32)[:, None] / 1000
    return Dataset(DataSpec("toy", (1,), 10, "tabular"), samples, torch.tensor(labels))


def drawn(batch):
    return (batch.inputs[..., 0] * 1000).round().long()


@pytest.mark.parametrize("kind", ["any", "distinct", "same"])
@settings(deadline=None)
@given(
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    trials=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    seed=st.integers(0, 3),
)
def test_what_is_drawn_keeps_every_promise(kind, labels, trials, batch_size, seed):
    data = numbered(labels)
    try:
        batch = draw_victims(data, trials, batch_size, seed, kind)
    except BadInput:
        counts = data.labels.bincount()
        enough = {
            "any": len(labels) // batch_size,
            "distinct": len(labels) // batch_size if int((counts > 0).sum()) >= batch_size * trials else 0,
            "same": int((counts // batch_size).sum()),
        }
        assert enough[kind] < trials  # refused only for want of samples
        return
    assert batch.inputs.shape == (trials, batch_size, 1)
    assert drawn(batch).unique().numel() == trials * batch_size  # nobody is attacked twice
    assert torch.equal(data.labels[drawn(batch)], batch.labels)
    fewer = draw_victims(data, 1, batch_size, seed, kind)
    assert torch.equal(fewer.inputs[0], batch.inputs[0])  # the first trial does not know how many follow
    for row in batch.labels:
        if kind == "distinct":
            assert row.unique().numel() == batch_size
        if kind == "same":
            assert row.unique().numel() == 1


def test_seeds_differ_and_repeat():
    data = numbered([0, 1] * 50)
    one, again, other = (draw_victims(data, 4, 2, seed) for seed in (1, 1, 2))
    assert torch.equal(one.inputs, again.inputs)
    assert not torch.equal(one.inputs, other.inputs)


def test_all_samples_can_be_used():
    data = numbered([0, 1, 2] * 4)
    assert drawn(draw_victims(data, 4, 3, 0, "distinct")).unique().numel() == 12
    assert drawn(draw_victims(data, 3, 4, 0, "same")).unique().numel() == 12
    assert drawn(draw_victims(data, 12, 1, 0)).unique().numel() == 12


@pytest.mark.parametrize(
    ("trials", "batch_size", "kind", "words"),
    [
        (1, 13, "any", "batch_size .*at most 12, got 13"),
        (5, 3, "any", "trials of 3 samples .*at most 4, got 5"),
        (1, 4, "distinct", "batch_size with distinct labels .*at most 3, got 4"),
        (5, 3, "distinct", "trials .*distinct labels .*at most 4, got 5"),
        (1, 5, "same", "batch_size with same labels .*at most 4, got 5"),
        (4, 3, "same", "trials .*at most 3, got 4"),
        (0, 1, "any", "trials must be at least 1"),
        (1, 0, "any", "batch_size must be at least 1"),
        (1, 1, "equal", "one of any, distinct, same"),
    ],
)
def test_too_few_samples_are_explained(trials, batch_size, kind, words):
    with pytest.raises(BadInput, match=words):
        draw_victims(numbered([0, 1, 2] * 4), trials, batch_size, 0, kind)


def test_public_batch_is_one_trial_of_at_most_the_limit():
    data = numbered([0, 1] * 5)
    assert public_batch(data, 4, 0).inputs.shape == (1, 4, 1)
    assert drawn(public_batch(data, 99, 0)).unique().numel() == 10
    with pytest.raises(BadInput, match="at least 1"):
        public_batch(data, 0, 0)


@pytest.mark.parametrize("kind", ["any", "distinct", "same"])
def test_a_crowd_begins_with_the_victim_and_holds_nobody_twice(kind):
    data = numbered([0, 1, 2] * 12)
    alone, crowd = draw_victims(data, 3, 2, 0, kind), draw_victims(data, 3, 2, 0, kind, clients=4)
    assert crowd.inputs.shape == (3, 8, 1)
    assert torch.equal(crowd.inputs[:, :2], alone.inputs)
    assert all(row.unique().numel() == 8 for row in drawn(crowd))
    pairs = crowd.labels.reshape(12, 2)
    assert kind == "any" or bool(((pairs[:, 0] == pairs[:, 1]) == (kind == "same")).all())


def test_a_crowd_is_the_same_however_many_trials_follow_and_begins_like_a_smaller_one():
    data = numbered([0, 1, 2] * 12)
    whole = draw_victims(data, 5, 2, 0, clients=4).inputs
    assert torch.equal(draw_victims(data, 2, 2, 0, clients=4).inputs, whole[:2])
    assert torch.equal(draw_victims(data, 5, 2, 0, clients=3).inputs, whole[:, :6])


def test_the_others_of_a_crowd_hold_other_shares():
    data = numbered([0, 1, 2] * 12)
    shares = [torch.arange(9 * c, 9 * c + 9) for c in range(4)]
    rows = drawn(draw_victims(data, 4, 2, 0, shares=shares, clients=4)) // 9  # whose share
    assert rows[:, ::2].equal(rows[:, 1::2])
    assert all(row.unique().numel() == 4 for row in rows)
    assert rows[:, 0].tolist() == [0, 1, 2, 3]


def test_a_crowd_that_is_too_large_is_refused():
    with pytest.raises(BadInput, match="2 samples"):
        draw_victims(numbered([0, 1, 2] * 4), 2, 2, 0, clients=7)


@pytest.mark.parametrize("kind", ["any", "distinct"])
def test_the_others_are_those_that_no_trial_attacks(kind):
    data = numbered([0, 1, 2, 3] * 5)
    victims = draw_victims(data, 3, 2, 7, kind).inputs.flatten()
    others = draw_others(data, 100, 3, 2, 7, kind)
    assert others.inputs.shape[:2] == (1, 14)
    assert sorted([*victims.tolist(), *others.inputs.flatten().tolist()]) == sorted(data.inputs.flatten().tolist())
    assert draw_others(data, 5, 3, 2, 7, kind).inputs.shape[1] == 5


def test_where_all_are_attacked_there_are_no_others():
    assert draw_others(numbered([0, 1] * 3), 10, 3, 2, 0) is None


def test_victims_come_from_different_photographs_as_long_as_there_are_any():
    photos = load("photos32")
    for seed in range(20):
        labels = draw_victims(photos, 18, 1, seed).labels.flatten().tolist()  # the label is the photograph
        assert sorted(labels[:9]) == sorted(labels[9:]) == list(range(9))
    assert len(set(draw_victims(photos, 3, 3, 0).labels.flatten().tolist())) == 9
    whole = draw_victims(photos, len(photos), 1, 0)
    assert whole.labels.flatten().bincount().tolist() == photos.labels.bincount().tolist()
