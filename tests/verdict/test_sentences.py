"""One configuration: the strongest attack that beats its control, traces, labels."""

import dataclasses

import pytest

from leakgauge.metrics.intervals import rate
from leakgauge.types import Control, Guarantee, Interval, Summary
from leakgauge.verdict.sentences import LABELS, conclusion


def row(
    attack="dlg", recovered=0, records=6, *, flags=(), labels=None, control=None, guess=0.1, psnr=10.0, **more
) -> Summary:
    metrics = {"psnr_mean_per_image": Interval(psnr, None, None)}
    metrics |= {} if labels is None else {LABELS: Interval(labels, None, None)}
    return Summary(
        attack,
        "prune",
        False,
        records or 6,
        0,
        metrics,
        rate(recovered, records, "ssim>=0.6"),
        {},
        {"mean-image": {LABELS: Interval(guess, None, None)}},
        flags,
        control=control,
        **more,
    )


def test_the_attack_that_recovers_most_credibly_decides():
    chance = Control(39, True, 6, 0, 20.0, 0.5, 0.5, False, 0.9, False)
    flattered = row("ggl", 0, met=6, control=chance)
    found = conclusion("prune", [row("dlg", 1), row("cpl", 2), flattered], None, 1)
    assert (found.attack, found.leaks, found.rate.recovered) == ("cpl", True, 2)
    alone = conclusion("prune", [flattered], None, 1)
    assert not alone.leaks
    assert "comes no closer to them than to others of the same kind: nothing was recovered" in alone.sentence


def test_scores_that_no_control_can_decide_are_said_to_decide_nothing():
    found = conclusion("prune", [row("dlg", 0, 1, met=1, undecided=1), row("cpl", 0, 1, psnr=30.0)], None, 1)
    assert (found.attack, found.leaks, found.undecided) == ("dlg", False, 1)
    assert "too few other samples to tell whether by chance" in found.sentence


def test_a_failed_search_that_meets_the_criterion_is_said_to_have_recovered_nothing():
    found = conclusion("prune", [row("dlg", 0, met=2, flags=("objective-did-not-fall",))], None, 1)
    assert not found.leaks
    assert found.sentence == (
        "With prune, dlg meets ssim>=0.6 for 2 of 6 records, but by a search that failed: no recovery is shown."
    )


@pytest.mark.parametrize(
    ("control", "said"),
    [
        (None, "is no closer to them than a guess or another sample: no recovery is shown"),
        (Control(39, True, 6, 2, 9.0, 0.01, 0.5, True, 0.9, False), "is not clearly nearer to them than to others"),
        (Control(39, True, 6, 6, 1.0, 1e-4, 1e-4, True, 1e-9, True), "is no closer to them than a guess or another"),
    ],
)
def test_why_good_scores_do_not_count_is_told_as_it_was_found(control, said):
    """A control that is beaten, if not far enough, is not called unbeaten; one that convinces is not blamed at all."""
    sentence = conclusion("prune", [row(met=2, control=control)], None, 1).sentence
    assert said in sentence
    assert "failed" not in sentence


def test_one_record_is_told_in_the_singular():
    assert conclusion("none", [row(records=1)], None, 1).sentence.startswith(
        "Without defense, no attack recovered the one record (ssim>=0.6; at most 98"
    )
    assert "dlg recovers 1 of 1 record (" in conclusion("none", [row(recovered=1, records=1)], None, 1).sentence
    one = Control(39, True, 6, 1, 9.0, 1e-4, 0.5, True)
    assert (
        "1 of 6 recoveries of dlg is nearer to its own record"
        in conclusion("none", [row(control=one)], None, 1).sentence
    )


def test_labels_that_were_given_are_not_read():
    """Else the sentence would call an oracle's answer a leak."""
    given = row(labels=1.0, records=16, flags=("labels-given",))
    assert conclusion("prune", [given], None, 2).labels is None
    proven = dataclasses.replace(given, labels_proven=12)
    found = conclusion("prune", [proven], None, 2).labels
    assert (found.share, found.proven) == (12 / 32, 12)


def test_among_failures_the_closest_is_named():
    assert conclusion("prune", [row("dlg", psnr=5.0), row("cpl", psnr=15.0)], None, 1).attack == "cpl"


@pytest.mark.parametrize(("p", "told"), [(1e-4, True), (1e-3, True), (0.01, False)])
def test_traces_are_told_far_beyond_chance_only(p, told):
    found = conclusion("prune", [row(control=Control(39, True, 6, 5, 1.0, p, 0.5, True))], None, 1)
    assert (found.traces is not None) is told
    assert ("5 of 6 recoveries of dlg are nearer to their own record than to 39 others" in found.sentence) is told


def test_a_leak_needs_no_traces():
    found = conclusion("prune", [row(recovered=3, control=Control(39, True, 6, 5, 1.0, 1e-4, 0.5, True))], None, 1)
    assert found.traces is None


@pytest.mark.parametrize(("share", "guess", "told"), [(1.0, 0.1, True), (0.3, 0.19, False), (0.1, 0.1, False)])
def test_labels_are_told_where_they_are_more_than_a_guess(share, guess, told):
    found = conclusion("prune", [row(labels=share, guess=guess, records=16)], None, 2)
    assert (found.labels is not None) is told


def test_nothing_that_ran_and_nothing_that_claims_records_are_two_things():
    assert "no attack of this run fits" in conclusion("none", [], None, 1).sentence
    claimless = conclusion("none", [row(records=0)], Guarantee(1.0, 1e-5, "sample"), 1)
    assert "no attack of this run claims records" in claimless.sentence
    assert claimless.guarantee == Guarantee(1.0, 1e-5, "sample")


def test_two_labels_of_six_are_no_more_than_one_class_in_ten_explains():
    """Even where the guess of a floor, on the same few records, named none."""
    few = [row(labels=2 / 6, guess=0.0, records=6)]
    assert conclusion("dp-sgd", few, None, 1, classes=10).labels is None
    assert conclusion("dp-sgd", few, None, 1, classes=100).labels.guess == 0.01


def test_a_label_that_the_update_proves_needs_no_statistics():
    """One update, ten classes: one of one is no evidence by itself, and here it needs none."""
    one = row("labels", 0, 0, labels=1.0, labels_proven=1)
    one = dataclasses.replace(one, trials=1)
    found = conclusion("none", [one], None, 1, classes=10)
    assert (found.labels.proven, found.labels.read, found.labels.records) == (1, 1, 1)
    assert (
        "The attack labels reads the labels of 1 of 1 record (guessing: 10%); what was shared proves it."
        in found.sentence
    )
    unproven = dataclasses.replace(one, labels_proven=0)
    assert conclusion("none", [unproven], None, 1, classes=10).labels is None
