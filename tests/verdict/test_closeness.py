"""Recoveries against the true samples and against others: chance is told from reading, whatever the score."""

import pytest
import torch

from leakgauge.types import Batch
from leakgauge.verdict.closeness import CANDIDATES, Candidates, closeness, draw_candidates, judge, ranks_of


def drawn(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def batch_of(labels, seed=0) -> Batch:
    labels = torch.tensor(labels)
    return Batch(drawn(*labels.shape, 1, 4, 4, seed=seed), labels)


# --- who a record is compared with ------------------------------------------------------------------


def test_candidates_carry_the_labels_of_the_batch_and_none_comes_twice_in_a_trial():
    others = batch_of([[0] * 30 + [1] * 30], seed=1)
    batch = batch_of([[0, 1, 1], [1, 0, 0]])
    found = draw_candidates(batch, others, (0, 1))
    assert found.same_label
    assert found.places.shape == (2, 15, 3)  # 30 samples of a label, two of them in a batch
    label_of = {tuple(x.flatten().tolist()): int(y) for x, y in zip(others.inputs[0], others.labels[0], strict=True)}
    for trial, labels in enumerate(batch.labels.tolist()):
        for number in range(15):
            rival = found.pool[found.places[trial, number]]
            assert [label_of[tuple(x.flatten().tolist())] for x in rival] == labels
        assert len(torch.unique(found.places[trial])) == 15 * 3


def test_there_are_at_most_so_many_and_a_trial_draws_the_same_alone():
    others = batch_of([[0] * 200], seed=1)
    both = draw_candidates(batch_of([[0], [0]]), others, (3, 4))
    alone = draw_candidates(batch_of([[0]]), others, (4,))
    assert both.places.shape[1] == CANDIDATES
    assert torch.equal(both.take([1]).places, alone.places[:, :CANDIDATES])


def test_where_a_label_is_rare_labels_are_let_go_and_that_is_said():
    others = batch_of([[0] * 30 + [1] * 2], seed=1)
    found = draw_candidates(batch_of([[1]]), others, (0,))
    assert not found.same_label
    assert found.places.shape[1] == 32


@pytest.mark.parametrize("others", [None, batch_of([[0]])], ids=["none", "one"])
def test_without_others_there_is_no_control(others):
    assert draw_candidates(batch_of([[0, 1]]), others, (0,)) is None


# --- places and p-values ----------------------------------------------------------------------------


def rivals(trials, count, size, seed=5) -> Candidates:
    everyone = trials * count * size
    return Candidates(drawn(everyone, 1, 4, 4, seed=seed), torch.arange(everyone).view(trials, count, size), True)


def test_the_true_batch_comes_first_and_every_rival_is_matched_anew():
    true, candidates = drawn(2, 3, 1, 4, 4), rivals(2, 7, 3)
    recovered = true[:, [2, 0, 1]]  # in another order
    close = closeness(recovered, true, candidates).matched
    assert close.shape == (2, 8, 3)
    assert (close[:, 0] == 100).all()
    assert (close[:, 1:] < 20).all()
    assert (ranks_of(close) == 1).all()


def test_ties_count_half():
    grey = torch.full((1, 1, 1, 4, 4), 0.5)
    close = closeness(grey, grey + 0.1, Candidates(grey[0] + 0.1, torch.zeros(1, 4, 1).long(), True))
    assert ranks_of(close.matched).tolist() == [[3.0]]


def test_perfect_recoveries_beat_the_control_even_in_one_trial():
    true = drawn(1, 1, 1, 4, 4)
    found = judge(closeness(true, true, rivals(1, 39, 1)), True)
    assert (found.first, found.rank_median, found.better) == (1, 1.0, True)
    assert found.p_mean == pytest.approx(1 / 40, abs=0.01)


def test_pictures_that_have_nothing_to_do_with_the_victims_do_not():
    beaten = [
        judge(
            closeness(drawn(8, 1, 1, 4, 4, seed=s), drawn(8, 1, 1, 4, 4, seed=100 + s), rivals(8, 39, 1, s + 50)), True
        )
        for s in range(40)
    ]
    assert sum(b.p_mean <= 0.05 for b in beaten) <= 6  # 2 expected
    assert sum(b.p_best <= 0.05 for b in beaten) <= 6
    assert sum(b.better for b in beaten) <= 8  # either of the two


def test_one_exact_recovery_among_many_failures_is_seen():
    true = drawn(30, 1, 1, 4, 4)
    recovered = drawn(30, 1, 1, 4, 4, seed=9)
    recovered[7] = true[7]
    found = judge(closeness(recovered, true, rivals(30, 39, 1)), True)
    assert found.p_best <= 0.05
    assert found.better


def test_matching_a_batch_to_the_truth_gives_no_advantage_over_others():
    """Each recovery is given the record it resembles most, and so it is for every rival."""
    places = torch.cat(
        [
            ranks_of(
                closeness(
                    drawn(6, 4, 1, 4, 4, seed=s), drawn(6, 4, 1, 4, 4, seed=s + 99), rivals(6, 19, 4, s + 40)
                ).matched
            )
            for s in range(12)
        ]
    )
    assert places.mean() == pytest.approx(10.5, abs=1.0)


def test_too_few_rivals_to_tell_accuse_nobody():
    true = drawn(1, 1, 1, 4, 4)
    found = judge(closeness(true, true, rivals(1, 3, 1)), True)
    assert found.first == 1
    assert found.better is None


def test_the_same_recoveries_give_the_same_p_value():
    close = closeness(drawn(5, 1, 1, 4, 4, seed=2), drawn(5, 1, 1, 4, 4), rivals(5, 9, 1))
    assert judge(close, True) == judge(close, True)


# --- what convinces ---------------------------------------------------------------------------------


def test_half_of_a_batch_that_is_nearest_to_its_own_convinces_where_whole_batches_could_not():
    """One update of six records among 40 batches: permuting batches gives no p below 1/40."""
    true = drawn(1, 6, 1, 4, 4)
    recovered = drawn(1, 6, 1, 4, 4, seed=9)
    recovered[0, :3] = true[0, :3]
    found = judge(closeness(recovered, true, rivals(1, 39, 6)), True)
    assert found.first >= 3
    assert found.p_first < 1e-3 < found.p_mean
    assert found.convincing


def test_one_record_among_forty_convinces_nobody_and_that_is_said():
    true = drawn(1, 1, 1, 4, 4)
    found = judge(closeness(true, true, rivals(1, 39, 1)), True)
    assert found.better
    assert found.convincing is None


def test_where_few_records_are_attacked_more_others_are_drawn():
    others = batch_of([[0] * 1200], seed=1)
    assert draw_candidates(batch_of([[0]]), others, (0,)).places.shape[1] == 999
    assert draw_candidates(batch_of([[0], [0]]), others, (0, 1)).places.shape[1] == CANDIDATES


def test_chance_convinces_at_most_once_in_a_thousand():
    """p_first is a valid p-value: over many runs on nothing, no more of them are small than should be."""
    runs = [
        judge(
            closeness(drawn(2, 3, 1, 4, 4, seed=s), drawn(2, 3, 1, 4, 4, seed=s + 500), rivals(2, 9, 3, s + 900)), True
        )
        for s in range(150)
    ]
    assert sum(r.p_first <= 0.05 for r in runs) <= 15  # 7.5 expected at most
    assert not any(r.convincing for r in runs)


def test_what_is_not_claimed_says_nothing():
    true = drawn(4, 2, 1, 4, 4)
    recovered = true.clone()
    recovered[:, 1] = 0.5
    claimed = torch.tensor([[True, False]]).expand(4, 2)
    found = judge(closeness(recovered, true, rivals(4, 39, 2), claimed), True)
    assert (found.first, found.records, found.rank_median) == (4, 8, 1.0)
    nothing = judge(closeness(recovered, true, rivals(4, 39, 2), claimed & False), True)
    assert (nothing.first, nothing.better, nothing.convincing) == (0, None, None)
