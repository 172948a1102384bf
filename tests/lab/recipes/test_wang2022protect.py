"""The recipe's own measurements: METHODS G12 for compensation, and what root samples can change."""

from __future__ import annotations

import pytest

from leakgauge.lab.recipes.wang2022protect._federation import Curve
from leakgauge.lab.recipes.wang2022protect._studies import Compensation
from leakgauge.lab.recipes.wang2022protect._table_3 import NoisedShare, RootSet
from leakgauge.lab.reproduce.running import run_one
from leakgauge.types import Federation, Partition


def mean(sample):
    return sum(sample) / len(sample)


def test_the_right_variance_finds_the_rank_and_cuts_the_error_threefold():
    found = run_one(Compensation(draws=4), "cpu", None).figures
    assert set(found["directions_kept"]) <= {3, 4}, "now and then the largest noise lies just above the band"
    assert mean(found["error_before"]) > 3 * mean(found["error_after"])


def test_the_papers_variance_does_nothing_or_takes_everything():
    weak = Compensation(draws=2, scale=1e-4, paper_variance=True, keep_below=True)  # a strong signal reaches the band
    released = run_one(weak, "cpu", None).figures
    assert released["error_after"] == pytest.approx(released["error_before"])
    assert released["directions_kept"] == (41, 41)
    text = run_one(Compensation(draws=2, paper_variance=True), "cpu", None).figures
    assert mean(text["error_after"]) > mean(text["error_before"])


def test_draws_do_not_depend_on_how_many_there_are():
    few, more = (run_one(Compensation(draws=n), "cpu", None).figures["error_after"] for n in (2, 3))
    assert more[:2] == pytest.approx(few)


def test_a_curve_is_looked_at_on_the_way_and_ends_where_the_training_ends():
    small = Curve(
        model="mlp:hidden=8",
        data="digits",
        partition=Partition(kind="iid", clients=8),
        federation=Federation(rounds=8, per_round=4, server_lr=0.5),
    )
    found = run_one(small, "cpu", None).figures
    at = {n: run_one(small.resized(n), "cpu", None).figures["accuracy"] for n in (2, 4, 8)}
    assert (found["accuracy_quarter"], found["accuracy_half"], found["accuracy"]) == (at[2], at[4], at[8])


def test_a_biased_root_set_moves_the_risk_more_than_an_even_one():
    even, biased = (
        run_one(RootSet(data="digits", model="mlp:hidden=8", root=50, bias=b), "cpu", None).figures for b in (0.1, 1.0)
    )
    assert 0 <= even["risk_apart"][0] < biased["risk_apart"][0]
    assert 0 <= even["entries_moved"][0] <= 1


@pytest.mark.parametrize("roots", ["made-up", "distilled"])
def test_other_kinds_of_root_samples_are_held_beside_real_ones(roots):
    found = run_one(RootSet(data="digits", model="mlp:hidden=8", root=20, roots=roots), "cpu", None).figures
    assert found["risk_apart"][0] > 0
    assert 0 <= found["entries_moved"][0] <= 1


def test_the_variance_of_the_mean_also_serves_where_what_lies_below_is_kept():
    above, outside = (run_one(Compensation(draws=2, keep_below=k), "cpu", None).figures for k in (False, True))
    assert outside["error_after"] == pytest.approx(above["error_after"], rel=0.1)


def test_balanced_slices_are_alike_and_swept_ones_are_not():
    even, swept = (
        run_one(NoisedShare(data="digits", noised=2, packing=p), "cpu", None).figures for p in ("balanced", "sweep")
    )
    assert even["share_most"][0] - even["share_least"][0] < 0.01
    assert swept["share_most"][0] - swept["share_least"][0] > 0.1
