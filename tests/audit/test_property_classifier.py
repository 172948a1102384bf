import torch

from leakgauge.audit.property_classifier import fit


def rows(count, shift, seed):
    made = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    has = torch.arange(count) % 2 == 0
    made[has, 2] += shift
    return torch.cat([made, torch.ones(count, 1)], 1), has  # the last feature never changes


def test_a_feature_that_differs_is_found_on_rows_never_seen():
    classifier = fit(*rows(120, 4.0, seed=0), trees=50, seed=0)
    unseen, has = rows(60, 4.0, seed=1)
    assert ((classifier.probability(unseen) > 0.5) == has).double().mean() > 0.85


def test_the_same_seed_grows_the_same_forest_and_a_row_is_judged_alone():
    features, has = rows(80, 1.0, seed=0)
    first, second = (fit(features, has, trees=20, seed=3).probability(features) for _ in range(2))
    assert torch.equal(first, second)
    alone = fit(features, has, trees=20, seed=3).probability(features[5:6])
    assert torch.equal(alone, first[5:6])


def test_the_random_state_of_the_caller_stays_untouched():
    import numpy as np

    before = np.random.get_state()[1].copy()
    fit(*rows(40, 1.0, seed=0), trees=5, seed=2**40)
    assert (np.random.get_state()[1] == before).all()


def test_its_own_score_tells_a_good_feature_from_none_without_seeing_a_victim():
    good, none = fit(*rows(120, 4.0, seed=0), trees=50, seed=0), fit(*rows(120, 0.0, seed=0), trees=50, seed=0)
    assert good.own_score > 0.85
    assert abs(none.own_score - 0.5) < 0.2


def test_very_few_trees_are_no_reason_to_warn():
    assert 0 <= fit(*rows(40, 1.0, seed=0), trees=1, seed=0).own_score <= 1
