"""Pairs are shown from the most exposed to the least, and those left out are counted."""

import dataclasses

import pytest

from leakgauge.report import gallery
from leakgauge.report.allowance import Allowance
from leakgauge.report.gallery import exhibits, guesses


def test_pairs_run_from_best_recovered_to_worst(made):
    for group in exhibits(made.report, made.pictures).values():
        for exhibit in group:
            scores = [float(pair.scores[0][1].replace("−", "-")) for pair in exhibit.pairs]
            assert scores
            assert scores == sorted(scores, reverse=True)


@pytest.fixture
def room(monkeypatch):
    """room(shown, more): as if a page could hold no more than that."""
    return lambda shown, more: monkeypatch.setattr(gallery, "allowance", lambda *_: Allowance(32, shown, more))


def ranks(pairs):
    return [int(pair.rank.split()[0]) for pair in pairs]


def test_what_is_not_in_the_open_waits_behind_a_click(made, room):
    room(2, 10)
    shown = exhibits(made.report, made.pictures)["none"][0]
    assert ranks(shown.pairs) == [1, 2]
    assert ranks(shown.more) == [3, 4, 5, 6]
    assert shown.more[-1].rank == "6 of 6"
    assert shown.note == ""


def test_records_left_out_are_counted_and_the_last_one_is_always_there(made, room):
    room(2, 2)
    shown = exhibits(made.report, made.pictures)["none"][0]
    assert ranks(shown.more) == [3, 6]
    assert shown.note == "2 of 6 records are not on this page, all less exposed than the first 2."


def test_guesses_are_few(made):
    assert [len(g.pairs) for g in guesses(made.report, made.pictures)] == [4, 4]
    assert not any(g.more for g in guesses(made.report, made.pictures))


def test_every_pair_has_the_objective_of_its_trial(made):
    groups = exhibits(made.report, made.pictures)
    assert all(pair.curve.said.startswith("own objective 8 to 0.1") for pair in groups["none"][0].pairs)
    assert all(pair.curve is None for g in guesses(made.report, made.pictures) for pair in g.pairs)


def test_of_a_table_both_ends_are_in_the_open_and_the_rest_between(make):
    made = make("tabular", (30,))
    shown = exhibits(made.report, made.pictures)["none"][0]
    assert ranks(shown.comparisons) == [1, 6]
    assert ranks(shown.more_comparisons) == [2, 3, 4, 5]


@pytest.mark.parametrize(("worth", "doubt"), [(True, ""), (False, "not credible"), (None, "undecided")])
def test_a_score_that_does_not_count_says_why_and_bears_no_mark(made, worth, doubt):
    findings = tuple(dataclasses.replace(f, credible=(worth,) * len(f.records)) for f in made.report.findings)
    report = dataclasses.replace(made.report, findings=findings)
    best = exhibits(report, made.pictures)["none"][1].pairs[0]
    assert (best.met, best.doubt) == (worth is True, doubt)
    assert all(pair.doubt == "" for exhibit in guesses(report, made.pictures) for pair in exhibit.pairs)
