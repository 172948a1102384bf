"""Whole numbers from estimates: the nearest that fit, sample by sample, and as labels."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.matching.whole_counts import counts_by_impact, nearest_counts, sorted_labels

INF = torch.inf


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_estimates_near_whole_numbers_become_these():
    assert nearest_counts(rows([2.1, 0.9, -0.1, 1.1], [4.0, 0.0, 0.0, 0.0]), 4).tolist() == [[2, 1, 0, 1], [4, 0, 0, 0]]


def test_what_is_left_goes_to_the_largest_remainders():
    assert nearest_counts(rows([1.5, 1.4, 1.1]), 4).tolist() == [[2, 1, 1]]


def test_negative_estimates_are_made_up_for_by_the_others():
    assert nearest_counts(rows([5.0, 4.0, -3.0]), 6).tolist() == [[4, 2, 0]]


def test_no_count_falls_below_its_least_and_excluded_classes_stay_out():
    least = torch.tensor([[0, 2, 0]])
    assert nearest_counts(rows([4.0, 0.0, 0.0]), 4, least).tolist() == [[2, 2, 0]]
    assert nearest_counts(rows([-INF, 1.0, 1.2]), 5).tolist()[0][0] == 0


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=12), st.integers(1, 200), st.lists(st.booleans(), min_size=12))
def test_counts_always_sum_to_the_batch_and_respect_what_is_certain(estimate, samples, proved):
    least = torch.tensor([proved[: len(estimate)]]).long()
    if least.sum() > samples:
        least = least * 0
    counts = nearest_counts(rows(estimate), samples, least)
    assert counts.sum() == samples
    assert (counts >= least).all()


def test_an_impact_of_one_sample_is_taken_off_the_class_that_was_counted():
    score, impact = rows([-6.0, -2.0, 1.0]), rows(-2.0)
    assert counts_by_impact(score, impact, 4).tolist() == [[3, 1, 0]]


def one_by_one(score, impact, samples):
    """The second stage as it is published: a loop over samples."""
    counts, rest = torch.zeros_like(score, dtype=torch.long), score.clone()
    for _ in range(samples):
        for row in range(len(score)):
            lowest = rest[row].argmin()
            counts[row, lowest] += 1
            rest[row, lowest] -= impact[row]
    return counts


def test_all_rounds_at_once_equal_one_after_another():
    g = torch.Generator().manual_seed(0)
    score = torch.rand(20, 7, generator=g, dtype=torch.float64)  # none negative: no first stage
    impact = -(torch.rand(20, generator=g, dtype=torch.float64) ** 4)
    for samples in (1, 5, 64, 300):
        assert torch.equal(counts_by_impact(score, impact, samples), one_by_one(score, impact, samples))


def test_without_any_impact_the_lowest_score_takes_all():
    assert counts_by_impact(rows([0.3, 0.1, 0.2]), rows(0.0), 4096).tolist() == [[0, 4096, 0]]


def test_with_more_negative_scores_than_samples_the_lowest_are_taken():
    assert counts_by_impact(rows([-1.0, -3.0, -2.0]), rows(-1.0), 2).tolist() == [[0, 1, 1]]


def test_an_offset_moves_the_second_stage_only():
    score, impact = rows([-1.0, 0.5, 0.5]), rows(-1.0)
    assert counts_by_impact(score, impact, 2, rows([0.0, 0.0, 3.0])).tolist() == [[1, 0, 1]]


def test_counts_as_labels_in_rising_order():
    assert sorted_labels(torch.tensor([[2, 0, 1], [0, 3, 0]]), 3).tolist() == [[0, 0, 2], [1, 1, 1]]
