"""The CPL framework's initial seeds: each is what its name says, per trial and reproducible."""

import pytest
import torch

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.starts import STARTS, start_inputs
from leakgauge.types import Batch

SHAPE = (2, 3, 8, 8)
PUBLIC = Batch(torch.rand(1, 5, 3, 8, 8), torch.zeros(1, 5, dtype=torch.long))


@pytest.mark.parametrize("kind", STARTS)
def test_shape_and_reproducibility(kind):
    labels = torch.zeros(2, 2, dtype=torch.long)
    both = start_inputs(kind, (1, 2), "start", SHAPE, PUBLIC, labels)
    assert both.shape == (2, *SHAPE)
    assert torch.equal(both[1:], start_inputs(kind, (2,), "start", SHAPE, PUBLIC, labels[1:]))


@pytest.mark.parametrize("repeats", [2, 4, 8])
def test_a_pattern_is_exactly_periodic(repeats):
    start = start_inputs(f"patterned-{repeats}", (1,), "start", SHAPE)
    period = 8 // repeats
    assert torch.equal(start[..., period:, :], start[..., :-period, :])
    assert torch.equal(start[..., period:], start[..., :-period])
    assert 0 <= start.min() <= start.max() < 1


def test_a_pattern_covers_sides_that_do_not_divide():
    assert start_inputs("patterned-4", (1,), "start", (1, 1, 7, 9)).shape == (1, 1, 1, 7, 9)


def test_a_table_is_patterned_along_its_columns():
    start = start_inputs("patterned-2", (1,), "start", (1, 10))
    assert torch.equal(start[..., 5:], start[..., :5])


def test_colours_fill_one_channel():
    red = start_inputs("red", (1,), "start", SHAPE)
    assert red[:, :, 0].eq(1).all()
    assert red[:, :, 1:].eq(0).all()
    assert start_inputs("dark", (1,), "start", SHAPE).eq(0).all()
    assert start_inputs("light", (1,), "start", SHAPE).eq(1).all()


def test_optimal_is_a_public_sample_and_hybrid_only_changes_its_centre():
    optimal = start_inputs("optimal", (1,), "start", SHAPE, PUBLIC)
    assert all(any(torch.equal(s, p) for p in PUBLIC.inputs[0]) for s in optimal[0])
    hybrid = start_inputs("hybrid", (1,), "start", SHAPE, PUBLIC)
    changed = (hybrid != optimal).any(2)[0, 0]
    assert changed[2:6, 2:6].all()
    assert changed.sum() == 16


@pytest.mark.parametrize(
    ("kind", "shape", "error"),
    [
        ("red", (1, 1, 8, 8), NotApplicable),
        ("patterned-8", (1, 1, 4, 4), BadInput),
        ("optimal", SHAPE, NotApplicable),
        ("same-class", SHAPE, NotApplicable),
    ],
)
def test_what_cannot_be_is_refused(kind, shape, error):
    with pytest.raises(error):
        start_inputs(kind, (1,), "start", shape)


def test_a_start_of_the_same_class_is_a_public_sample_with_that_label_where_there_is_one():
    public = Batch(torch.rand(1, 40, 3, 8, 8), torch.arange(40)[None] % 4)
    labels = torch.tensor([[0, 3], [2, 2], [7, 1]])  # nobody public is a 7
    start = start_inputs("same-class", (5, 6, 7), "start", SHAPE, public, labels)
    for trial, row in enumerate(labels.tolist()):
        for sample, label in zip(start[trial], row, strict=True):
            (place,) = [k for k, p in enumerate(public.inputs[0]) if torch.equal(p, sample)]
            assert place % 4 == label or label == 7
    assert not torch.equal(start[1, 0], start[1, 1]), "two samples of a class start from pictures of their own"


def test_a_start_of_the_same_class_needs_labels():
    with pytest.raises(NotApplicable, match="use --init optimal"):
        start_inputs("same-class", (1,), "start", SHAPE, PUBLIC)
