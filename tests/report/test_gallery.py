"""Pairs are shown best recovered first, and those left out are counted."""

import dataclasses

from leakgauge.report.gallery import exhibits


def test_pairs_run_from_best_recovered_to_worst(made):
    for group in exhibits(made.report, made.pictures).values():
        for exhibit in group:
            scores = [float(pair.scores[0][1].replace("−", "-")) for pair in exhibit.pairs]
            assert scores
            assert scores == sorted(scores, reverse=True)


def test_pairs_left_out_are_counted(make):
    made = make()
    rows = made.report.summary
    many = tuple(dataclasses.replace(r, defense=f"d{i}") for i in range(40) for r in rows[:2])
    findings = tuple(
        dataclasses.replace(f, defense=f"d{i}")
        for i in range(40)
        for f in made.report.findings
        if f.defense == "none" and f.attack in ("dlg", "inverting-gradients")
    )
    recovered = {
        name.replace("| none |", f"| d{i} |"): t for i in range(40) for name, t in made.pictures.recovered.items()
    }
    report = dataclasses.replace(made.report, summary=many, findings=findings)
    shown = exhibits(report, dataclasses.replace(made.pictures, recovered=recovered))["d0"][0]
    assert len(shown.pairs) == 4
    assert shown.note.startswith("2 more not shown")
