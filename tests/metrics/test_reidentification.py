import pytest
import torch
from sklearn.metrics import top_k_accuracy_score

from leakgauge.metrics.intervals import among_the_first, chance, hit_rates


def test_hits_agree_with_scikit_learn():
    scores = torch.rand(50, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(50) % 8
    for k in (1, 3, 5):
        ours = among_the_first(scores, labels, k).double().mean()
        assert ours == pytest.approx(top_k_accuracy_score(labels, scores, k=k, labels=list(range(8))))


def test_a_classifier_that_does_not_decide_gets_nothing_for_it():
    assert not among_the_first(torch.zeros(2, 6), torch.tensor([0, 5]), 5).any()
    assert not among_the_first(torch.full((1, 6), torch.nan), torch.tensor([0]), 5).any()


def test_failed_recoveries_stay_in_the_count_as_misses():
    found = hit_rates(torch.eye(4), torch.arange(4), torch.tensor([False, False, True, True]))
    assert (found["top_1"].recovered, found["top_1"].records, found["top_1"].value) == (2, 4, 0.5)
    assert found["top_1"].low < 0.5 < found["top_1"].high
    assert found["top_5"].recovered == 2


def test_chance_is_k_among_all():
    assert chance(50) == {"top_1": 0.02, "top_3": 0.06, "top_5": 0.1}
    assert chance(2)["top_3"] == 1.0
