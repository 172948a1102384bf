"""A candidate's number decides what it is; a killed search and two at once give the list of one."""

import dataclasses
import multiprocessing
import os

import pytest

from leakgauge.defenses.ats.operations import OPERATIONS, effect, written
from leakgauge.errors import BadInput
from leakgauge.lab import policy_search
from leakgauge.lab.policy_search import BLOCK, SINGLES, Scored, Search, best_of, candidate, ranked, search_policies
from leakgauge.types import Training

SEARCH = Search(
    "mlp:hidden=16", "digits", candidates=2 * BLOCK, pictures=4, batches=1, batch_size=8, training=Training(rounds=2)
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return search_policies(SEARCH, tmp_path_factory.mktemp("search"), device="cpu")


def test_candidates_are_drawn_by_their_number():
    assert candidate(0, 5) == ()
    drawn = [candidate(n, 5) for n in range(1, 400)]
    assert drawn == [candidate(n, 5) for n in range(1, 400)]
    assert drawn != [candidate(n, 6) for n in range(1, 400)]
    assert {len(t) for t in drawn} <= {0, 1, 2, 3}
    numbers = {n for t in drawn for n in t}
    assert numbers == set(range(50))


def test_all_are_scored_in_order(undisturbed):
    assert len(undisturbed) == SEARCH.candidates + 1
    assert undisturbed[0].policy == ""
    assert all(0 <= row.privacy <= 1 + 1e-6 for row in undisturbed)


def _killed(folder):
    """Dies in the middle of the search, as by kill -9."""

    def die(done, of):
        if 0 < done < of:
            os._exit(9)

    search_policies(SEARCH, folder, device="cpu", watch=die)


def test_a_killed_search_goes_on_and_gives_the_same_list(undisturbed, tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    there = len(list((tmp_path / "scores").glob("*.json")))
    assert 0 < there < len(SEARCH.blocks)
    assert search_policies(SEARCH, tmp_path, device="cpu") == undisturbed


def test_a_truncated_block_is_scored_again(undisturbed, tmp_path):
    search_policies(SEARCH, tmp_path, device="cpu")
    block = sorted((tmp_path / "scores").glob("*.json"))[1]
    block.write_text(block.read_text()[:40])
    assert search_policies(SEARCH, tmp_path, device="cpu") == undisturbed


def test_what_is_there_is_not_scored_again(tmp_path, monkeypatch, undisturbed):
    search_policies(SEARCH, tmp_path, device="cpu")
    monkeypatch.setattr(policy_search._Bench, "set_up", None)
    assert search_policies(SEARCH, tmp_path, device="cpu") == undisturbed


def test_the_most_private_come_first_and_equal_ones_once():
    rows = [
        Scored("", 0.9, -20.0),
        Scored("1", 0.5, -30.0),
        Scored("2", 0.4, -26.0),
        Scored("3", 0.3, -10.0),
        Scored("3", 0.3, -10.0),
        Scored("4", 0.2, -90.0),
    ]
    least, best = ranked(rows, None)
    assert least == pytest.approx(-20 * 85 / 63)
    assert [row.policy for row in best] == ["3", "2"]
    assert [row.policy for row in ranked(rows, -100)[1]] == ["4", "3", "2", "1"]


def test_more_candidates_begin_with_the_same(undisturbed, tmp_path):
    fewer = dataclasses.replace(SEARCH, candidates=5)
    assert [r.policy for r in search_policies(fewer, tmp_path, device="cpu")] == [r.policy for r in undisturbed[:6]]


def test_a_precision_that_scores_do_not_have_is_refused():
    with pytest.raises(BadInput, match="float32 or tf32"):
        dataclasses.replace(SEARCH, precision="float64")


def test_a_policy_met_again_under_other_numbers_has_the_scores_it_would_be_given(tmp_path, monkeypatch):
    """Against the slow way, which scores every candidate."""
    search = dataclasses.replace(SEARCH, candidates=8 * BLOCK, model="lenet-dlg")
    firsts = policy_search._first_equals(search)
    assert all(effect(candidate(n, 0)) == effect(candidate(first, 0)) for n, first in enumerate(firsts))
    again = [n for n, first in enumerate(firsts) if n != first]
    assert again
    asked = []
    score = policy_search._Bench.score
    monkeypatch.setattr(policy_search._Bench, "score", lambda self, ts: asked.extend(ts) or score(self, ts))
    fast = search_policies(search, tmp_path / "fast", device="cpu")
    assert len(asked) == search.candidates + 1 - len(again)
    monkeypatch.setattr(policy_search, "_first_equals", lambda search: list(range(search.count + 1)))
    slow = search_policies(search, tmp_path / "slow", device="cpu")
    assert (
        [row.policy for row in fast]
        == [row.policy for row in slow]
        == [written([candidate(n, 0)]) for n in range(search.candidates + 1)]
    )
    for row, same in zip(fast, slow, strict=True):
        assert row.privacy == pytest.approx(same.privacy, abs=1e-5)
        assert row.accuracy == pytest.approx(same.accuracy, rel=1e-3)


def test_a_block_whose_firsts_are_with_another_process_is_scored_all_the_same(undisturbed, tmp_path):
    search_policies(SEARCH, tmp_path, device="cpu")
    first, *_, last = sorted((tmp_path / "scores").glob("*.json"))
    first.unlink()
    last.unlink()
    for row, same in zip(search_policies(SEARCH, tmp_path, device="cpu"), undisturbed, strict=True):
        assert (row.policy, row.privacy) == (same.policy, pytest.approx(same.privacy, abs=1e-6))


def test_single_operations_are_each_different_one_alone(tmp_path):
    search = dataclasses.replace(SEARCH, single=True)
    assert len(SINGLES) == len(set(OPERATIONS)) == search.count == 29
    rows = search_policies(search, tmp_path, device="cpu")
    assert [row.policy for row in rows] == ["", *(str(n) for n in SINGLES)]
    (identity,) = (row for row in rows if row.policy == "28")
    assert identity.privacy == rows[0].privacy
    best = best_of(search, rows)[1]
    assert len(best) == 29
    assert [row.privacy for row in best] == sorted(row.privacy for row in rows[1:])


def test_a_search_of_triples_is_described_as_before_there_were_single_operations():
    assert "single" not in SEARCH.as_dict()
    assert dataclasses.replace(SEARCH, single=True).as_dict()["single"]


def test_a_fifth_of_the_published_number_of_triples_need_not_be_scored():
    firsts = policy_search._first_equals(Search("mlp", "digits"))
    assert sum(n != first for n, first in enumerate(firsts)) > 1500 // 6
