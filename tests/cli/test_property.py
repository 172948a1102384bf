"""`leakgauge property`: a table for people, stable keys for programs, one line for what cannot be asked."""

from __future__ import annotations

import json

import pytest

QUICK = (
    "--model",
    "mlp:hidden=16",
    "--data",
    "digits",
    "--trials",
    12,
    "--batch-size",
    6,
    "--batches",
    40,
    "--trees",
    10,
    "--device",
    "cpu",
)


def test_prints_the_stable_keys_and_writes_the_same(leakgauge, tmp_path):
    outcome = leakgauge(
        "property", *QUICK, "--property", "class:3", "--defenses", "prune:share=0.5", "--json", "--out", "asked"
    )
    assert outcome.code == 0, outcome.err
    result = outcome.json
    assert {
        "schema",
        "scenario",
        "inference",
        "seeds",
        "has",
        "carriers",
        "pools",
        "rows",
        "chance",
        "environment",
    } <= (result.keys())
    assert [(r["defense"], r["attacker"]) for r in result["rows"]] == [
        ("none", "plain"),
        ("prune:share=0.5", "plain"),
        ("prune:share=0.5", "adaptive"),
    ]
    for row in result["rows"]:
        assert {"auc", "control", "accuracy", "probabilities", "features", "seconds"} <= row.keys()
        assert 0 <= row["auc"]["low"] <= row["auc"]["value"] <= row["auc"]["high"] <= 1
    assert json.loads((tmp_path / "asked" / "property.json").read_text()) == result


def test_shows_a_table_the_verdict_and_what_it_rests_on(leakgauge, files_in, tmp_path):
    outcome = leakgauge("property", *QUICK, "--property", "class:3")
    assert outcome.code == 0, outcome.err
    assert "shuffled labels" in outcome.out
    assert "none: the update reveals the property" in outcome.out
    assert "12 victims of 6 samples, of which 6 have 'class:3' in 2 samples" in outcome.out
    assert files_in(tmp_path) == [], "nothing is written unless asked for"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--property", "glasses"), "class:K"),
        (("--property", "class:10"), "from 0 to 9"),
        (("--share", 0), "share"),
        (("--batches", 3), "batches"),
        (("--pooling", "most"), "pooling"),
        (("--trials", 1), "at least 2"),
        (("--threat-model", "eavesdropper"), "public-data"),
        (("--defenses", "gausian"), "did you mean 'gaussian'?"),
        (("--property", "class:3", "--batch-size", 400), "that carry it"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(leakgauge, one_line, flags, said):
    assert said in one_line(leakgauge("property", *QUICK, *flags))
