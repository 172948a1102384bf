"""Pairs are shown from the most exposed to the least, and those left out are counted."""

import dataclasses

import pytest

from leakgauge.report import gallery
from leakgauge.report.gallery import BYTES, PAIRS_PER_CELL, Allowance, allowance, exhibits, guesses


def test_pairs_run_from_best_recovered_to_worst(made):
    for group in exhibits(made.report, made.pictures).values():
        for exhibit in group:
            scores = [float(pair.scores[0][1].replace("−", "-")) for pair in exhibit.shown]
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
    assert ranks(shown.shown) == [1, 2]
    assert ranks(shown.folded) == [3, 4, 5, 6]
    assert shown.folded[-1].rank == "6 of 6"
    assert shown.note == ""


def test_records_left_out_are_counted_and_the_last_one_is_always_there(made, room):
    room(2, 2)
    shown = exhibits(made.report, made.pictures)["none"][0]
    assert ranks(shown.folded) == [3, 6]
    assert shown.note == "2 of 6 records are not on this page, all less exposed than the first 2."


def test_guesses_are_few(made):
    assert [len(g.shown) for g in guesses(made.report, made.pictures)] == [4, 4]
    assert not any(g.folded for g in guesses(made.report, made.pictures))


def test_every_pair_has_the_objective_of_its_trial(made):
    groups = exhibits(made.report, made.pictures)
    assert all(pair.curve.said.startswith("own objective 8 to 0.1") for pair in groups["none"][0].shown)
    assert all(pair.curve is None for g in guesses(made.report, made.pictures) for pair in g.shown)


def test_of_a_table_both_ends_are_in_the_open_and_the_rest_between(make):
    made = make("tabular", (30,))
    shown = exhibits(made.report, made.pictures)["none"][0]
    assert ranks(shown.shown) == [1, 6]
    assert ranks(shown.folded) == [2, 3, 4, 5]


@pytest.mark.parametrize(("worth", "doubt"), [(True, ""), (False, "not credible"), (None, "undecided")])
def test_a_score_that_does_not_count_says_why_and_bears_no_mark(made, worth, doubt):
    findings = tuple(dataclasses.replace(f, credible=(worth,) * len(f.records)) for f in made.report.findings)
    report = dataclasses.replace(made.report, findings=findings)
    best = exhibits(report, made.pictures)["none"][1].shown[0]
    assert (best.met, best.doubt) == (worth is True, doubt)
    assert all(pair.doubt == "" for exhibit in guesses(report, made.pictures) for pair in exhibit.shown)


# --- room on the page -----------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [1, 3, 12, 60, 150])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 64, 48), (3, 224, 224), (4, 300, 300)])
def test_all_pairs_together_fit(cells, shape):
    room = allowance(cells, shape)
    channels = 3 if shape[0] == 3 else 1
    scale = min(1, room.side / max(shape[1:]))
    picture = channels * shape[1] * scale * shape[2] * scale
    assert cells * (room.shown + room.more) * 2 * picture * 4 / 3 <= BYTES
    assert 4 <= room.shown <= PAIRS_PER_CELL


def test_few_small_pictures_are_shown_whole_and_many():
    room = allowance(4, (3, 32, 32))
    assert (room.side, room.shown, room.more) == (128, 12, 60)


def test_many_large_pictures_are_reduced_before_they_are_left_out():
    assert allowance(2, (3, 224, 224)).side == 128
    assert allowance(40, (3, 224, 224)).side < 128


def test_no_cells_need_no_room():
    assert allowance(0, (1, 8, 8)).shown == PAIRS_PER_CELL
