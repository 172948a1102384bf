"""Every row of the table finds its own findings, and the baselines stand apart from the attacks."""

import dataclasses

import pytest

from leakgauge.metrics.criterion import CRITERIA, Criterion
from leakgauge.report import to_html, to_junit, to_markdown, to_officer, to_summary
from leakgauge.report.cells import (
    CONTROL_NOTE,
    Cell,
    baselines,
    by_defense,
    cells,
    criterion,
    flags,
    ranked,
    skipped_lines,
)
from leakgauge.report.rows import most_exposed
from leakgauge.types import Skipped, cell_name

SSIM = Criterion("ssim", 0.6)


def identity(part):
    return part.attack, part.defense, part.adaptive


def cell_of(report, attack, defense, adaptive):
    return next(c for c in cells(report) if identity(c.row) == (attack, defense, adaptive))


def test_each_row_comes_with_its_own_findings_and_none_is_lost(made):
    found = cells(made.report)
    assert [c.row for c in found] == list(made.report.summary)
    assert all(identity(f) == identity(c.row) for c in found for f in c.findings)
    assert sum(len(c.findings) for c in found) == len(made.report.findings)


def test_plain_and_adaptive_findings_of_one_attack_do_not_mix(made):
    plain = cell_of(made.report, "dlg", "gaussian:std=0.1", False)
    adaptive = dataclasses.replace(plain.row, adaptive=True)
    report = dataclasses.replace(made.report, summary=(*made.report.summary, adaptive))
    assert cells(report)[-1].findings == ()
    assert cell_of(report, "dlg", "gaussian:std=0.1", False).findings == plain.findings


def test_findings_keep_the_order_of_trials(made):
    assert all([f.trial for f in c.findings] == [0, 1, 2] for c in cells(made.report))


def test_a_row_without_findings_is_still_a_cell(made):
    found = cells(dataclasses.replace(made.report, findings=()))
    assert len(found) == len(made.report.summary)
    assert all(c.findings == () for c in found)


def test_a_cell_is_named_as_its_pictures_are(made):
    assert [c.name for c in cells(made.report)] == list(made.pictures.recovered)
    assert cells(made.report)[0].name == cell_name("dlg", "none", False)


@pytest.mark.parametrize(("adaptive", "style"), [(True, "adaptive"), (False, "plain")])
def test_style_says_whether_the_attack_knew_the_defense(made, adaptive, style):
    assert Cell(dataclasses.replace(made.report.summary[0], adaptive=adaptive), ()).style == style


def test_attacks_are_grouped_by_defense_and_baselines_left_out(made):
    groups = by_defense(made.report)
    assert {defense: [(c.row.attack, c.style) for c in group] for defense, group in groups.items()} == {
        "none": [("dlg", "plain"), ("inverting-gradients", "plain")],
        "gaussian:std=0.1": [("dlg", "plain"), ("inverting-gradients", "adaptive")],
    }
    assert [c.row.attack for c in baselines(made.report)] == ["random-guess", "mean-image"]


def test_groups_follow_the_verdict_not_the_table(made):
    verdict = dataclasses.replace(made.report.verdict, configurations=made.report.verdict.configurations[::-1])
    assert list(by_defense(dataclasses.replace(made.report, verdict=verdict))) == ["gaussian:std=0.1", "none"]


def test_a_configuration_without_rows_is_an_empty_group(made):
    assert by_defense(dataclasses.replace(made.report, summary=())) == {"none": [], "gaussian:std=0.1": []}


def test_a_defense_that_the_verdict_does_not_know_comes_last(made):
    verdict = dataclasses.replace(made.report.verdict, configurations=made.report.verdict.configurations[1:])
    groups = by_defense(dataclasses.replace(made.report, verdict=verdict))
    assert list(groups) == ["gaussian:std=0.1", "none"]
    assert len(groups["none"]) == 2


@pytest.mark.parametrize("metric", ["ssim", "mse"])
def test_records_are_ranked_from_best_recovered_to_worst(made, metric):
    cell = cell_of(made.report, "inverting-gradients", "none", False)
    found = [r.scores[metric] for r in ranked(cell, Criterion(metric, 0.0))]
    assert len(set(found)) == 6
    assert found == sorted(found, reverse=metric == "ssim")


def test_a_record_keeps_its_trial_place_and_scores(made):
    cell = cell_of(made.report, "inverting-gradients", "none", False)
    for record in ranked(cell, SSIM):
        assert record.scores == cell.findings[record.trial].records[record.record]


def test_ties_keep_the_order_of_trials(made):
    cell = cell_of(made.report, "dlg", "none", False)
    same = tuple(dataclasses.replace(f, records=({"ssim": 0.5}, {"ssim": 0.5})) for f in cell.findings)
    found = ranked(dataclasses.replace(cell, findings=same), SSIM)
    assert [(r.trial, r.record) for r in found] == [(t, i) for t in range(3) for i in range(2)]


def test_failed_trials_are_not_ranked_even_with_records(made):
    cell = cell_of(made.report, "dlg", "none", False)
    first, *rest = cell.findings
    broken = dataclasses.replace(first, error="the loss became NaN")
    assert {r.trial for r in ranked(dataclasses.replace(cell, findings=(broken, *rest)), SSIM)} == {1, 2}


def test_records_without_a_score_come_last(made):
    cell = cell_of(made.report, "dlg", "none", False)
    records = ({"ssim": None}, {"ssim": -0.9}, {}, {"ssim": float("nan")}, {"ssim": 0.1})
    finding = dataclasses.replace(cell.findings[0], records=records)
    assert [r.record for r in ranked(Cell(cell.row, (finding,)), SSIM)] == [4, 1, 0, 2, 3]


def test_a_control_is_called_one_and_counts_nowhere(with_control):
    report = with_control.report
    (control,) = (c for c in cells(report) if c.control)
    assert control.style == "control"
    assert "none was read" in control.outcome
    assert [f.id for f in report.flags] == ["noise-unaccounted", "no-better-than-control"]
    assert [f.id for f in flags(report)] == ["noise-unaccounted"], "no result is in doubt because of a control"
    assert "on a decoy" not in most_exposed(report)
    assert "on a decoy" not in to_junit(report)
    assert "no-better-than-control" not in to_summary(report)
    assert "Read it as nothing." not in to_officer(report)
    assert CONTROL_NOTE in to_markdown(report)
    page = to_html(report, with_control.pictures)
    assert CONTROL_NOTE in page
    assert "dlg on a decoy, control" in page


def test_without_a_control_nothing_is_said_of_it(made):
    assert CONTROL_NOTE not in to_html(made.report, made.pictures)


def test_of_a_given_update_no_more_trials_are_asked_for(made):
    flag = dataclasses.replace(made.report.flags[0], remedy="read it as nothing; raise --trials if you doubt it")
    report = dataclasses.replace(made.report, flags=(flag,))
    assert "--trials" in flags(report)[0].remedy
    given = dataclasses.replace(report, scenario=dataclasses.replace(report.scenario, update="u.pt"))
    assert flags(given)[0].remedy == "read it as nothing; audit more updates if you doubt it"
    for text in (to_html(given), to_markdown(given)):
        assert "--trials" not in text


# --- the criterion that the rows were counted with --------------------------------------------------


def counted_with(report, *texts):
    rows = [
        dataclasses.replace(row, success_rate=dataclasses.replace(row.success_rate, criterion=text))
        for row, text in zip(report.summary, texts, strict=False)
    ]
    return dataclasses.replace(report, summary=tuple(rows))


def test_the_first_row_whose_criterion_can_be_read_decides(made):
    assert criterion(counted_with(made.report, "", "by eye", "ssim>=0.7", "ssim>=0.8")) == Criterion("ssim", 0.7)


@pytest.mark.parametrize(("kind", "shape"), [("image", (3, 8, 8)), ("tabular", (30,))])
def test_without_rows_the_default_of_this_kind_of_data_holds(make, kind, shape):
    report = dataclasses.replace(make(kind, shape).report, summary=())
    assert criterion(report) == CRITERIA[kind]


# --- what was not run -----------------------------------------------------------------------------

SKIPPED = (
    Skipped("linear", "all", False, "not applicable: no linear layer"),
    Skipped("peeling", "all", False, "not applicable: no linear layer"),
    Skipped("idlg", "prune", True, "settled by cpl: every record was recovered"),
)


def test_one_line_for_each_reason(made):
    report = dataclasses.replace(made.report, skipped=SKIPPED)
    assert skipped_lines(report) == [
        "not run: linear, peeling: not applicable: no linear layer",
        "not run against prune: idlg (adaptive): settled by cpl: every record was recovered",
    ]


def test_page_and_text_tell_it(made):
    report = dataclasses.replace(made.report, skipped=SKIPPED)
    for text in (to_html(report, made.pictures), to_markdown(report)):
        assert "What was not run" in text
        assert "settled by cpl" in text
    assert "What was not run" not in to_markdown(made.report)
