"""Other batches keep the labels, fit the shape, and are never the batch itself."""

import pytest
import torch

from leakgauge.recording.lookalikes import near_batches, other_batches, unlike_batches
from leakgauge.types import Batch, DataSpec

GREY, COLOUR = DataSpec("grey", (1, 9, 7), 4, "image"), DataSpec("colour", (3, 12, 12), 4, "image")
ROWS = DataSpec("rows", (5,), 4, "tabular")


def batch(data, size):
    g = torch.Generator().manual_seed(0)
    return Batch(torch.rand(1, size, *data.shape, generator=g), (torch.arange(size) % 3)[None])


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("data", [GREY, COLOUR, ROWS], ids=lambda d: d.name)
def test_each_is_another_batch_with_the_same_labels_in_range(data, size):
    own = batch(data, size)
    every = [*near_batches(own, [], 3, data), *other_batches(own, [], 3, data), *unlike_batches(own, 3, data)]
    assert len(every) >= 8
    for other in every:
        assert other.inputs.shape == own.inputs.shape
        assert torch.equal(other.labels, own.labels)
        assert float((other.inputs - own.inputs).abs().max()) > 1e-3
        assert 0 <= float(other.inputs.min()) <= float(other.inputs.max()) <= 1


def test_samples_at_hand_with_these_labels_are_preferred():
    own, pool = batch(COLOUR, 3), batch(COLOUR, 30)
    found = other_batches(own, [pool], 3, COLOUR)
    taken = found[0].inputs[0, 1]
    place = [i for i in range(30) if torch.equal(pool.inputs[0, i], taken)]
    assert place
    assert pool.labels[0, place[0]] == own.labels[0, 1]


def test_one_changed_sample_is_near_and_the_rest_is_as_it_was():
    own = batch(GREY, 4)
    changed = [int((o.inputs != own.inputs).flatten(2).any(2).sum()) for o in near_batches(own, [], 3, GREY)]
    assert sorted(changed) == [1, 1, 4, 4]


def test_a_seed_gives_the_same_ones():
    own = batch(GREY, 2)
    first, again = (unlike_batches(own, 5, GREY) for _ in range(2))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))
