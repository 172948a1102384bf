import pytest
import torch
from sklearn.metrics import roc_auc_score

from leakgauge.errors import BadInput
from leakgauge.metrics.intervals import area_under_curve
from leakgauge.types import Interval


def test_area_agrees_with_scikit_learn_ties_included():
    scores = torch.randint(0, 6, (60,), generator=torch.Generator().manual_seed(0)).float()
    positive = torch.rand(60, generator=torch.Generator().manual_seed(1)) < 0.4
    assert area_under_curve(scores, positive).value == pytest.approx(roc_auc_score(positive, scores))


def test_a_case_by_hand():
    # Positives 3, 1 against negatives 2, 0: won, won, lost, won. Rows win 1 and 1/2, columns 1/2 and 1:
    # both variances are 1/8, so the variance of the area is 1/8 / 2 + 1/8 / 2.
    found = area_under_curve(torch.tensor([3.0, 1, 2, 0]), torch.tensor([True, True, False, False]))
    assert found.value == 0.75
    assert found.low == pytest.approx(0.75 - 1.959964 * 0.125**0.5, abs=1e-6)
    assert found.high == 1.0


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """Two normals one standard deviation apart: the area is Phi(1 / sqrt 2) = 0.7602."""
    generator = torch.Generator().manual_seed(0)
    positive = torch.arange(80) % 2 == 0
    covered = 0
    for _ in range(300):
        found = area_under_curve(torch.randn(80, generator=generator) + positive, positive)
        covered += found.low <= 0.7602 <= found.high
    assert covered / 300 == pytest.approx(0.95, abs=0.04)


def test_groups_that_do_not_overlap_still_leave_some_doubt():
    positive = torch.arange(40) % 2 == 0
    assert area_under_curve(positive.float(), positive) == Interval(1.0, pytest.approx(0.025 ** (1 / 20)), 1.0)
    assert area_under_curve(-positive.float(), positive) == Interval(0.0, 0.0, pytest.approx(1 - 0.025 ** (1 / 20)))


def test_scores_that_are_all_alike_are_a_half():
    assert area_under_curve(torch.zeros(10), torch.arange(10) < 5).value == 0.5


def test_one_of_a_kind_has_no_interval_and_none_no_area():
    assert area_under_curve(torch.tensor([1.0, 0]), torch.tensor([True, False])) == Interval(1.0, None, None)
    with pytest.raises(BadInput, match="both groups"):
        area_under_curve(torch.ones(3), torch.ones(3, dtype=torch.bool))
    with pytest.raises(BadInput, match="finite"):
        area_under_curve(torch.tensor([torch.nan, 0]), torch.tensor([True, False]))
