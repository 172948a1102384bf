"""`leakgauge lab reidentify RUN`: who is on the recovered pictures of a finished run."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def run(leakgauge, small, tmp_path, monkeypatch):
    monkeypatch.setattr("leakgauge.lab.identification.WIDTH", 4)
    assert leakgauge("attack", "linear", *small, "--device", "cpu", "--out", "run", "--keep-private").code == 0
    return tmp_path / "run"


def test_prints_the_stable_keys_and_keeps_them_beside_the_run(leakgauge, run):
    outcome = leakgauge("lab", "reidentify", "run", "--steps", 2, "--device", "cpu", "--json")
    assert outcome.code == 0, outcome.err
    result = outcome.json
    assert {"schema", "data", "people", "classifier", "held_out", "chance", "rows", "environment"} <= result.keys()
    assert {r["attack"] for r in result["rows"]} == {"true pictures", "mean-image", "random-guess", "linear"}
    for row in result["rows"]:
        assert row["hits"].keys() == {"top_1", "top_3", "top_5"}
        assert row["hits"]["top_1"]["records"] == 2
    assert json.loads((run / "reidentification.json").read_text()) == result


def test_shows_ceiling_floors_and_chance_and_says_what_identity_is(leakgauge, run, tmp_path):
    outcome = leakgauge("lab", "reidentify", "run", "run", "--steps", 2, "--out", "elsewhere")
    assert outcome.code == 0, outcome.err
    for word in ("true pictures", "mean-image", "chance", "top-5", "The label is the identity here"):
        assert word in outcome.out
    assert (tmp_path / "elsewhere" / "reidentification.json").is_file()
    assert not (run / "reidentification.json").exists()


def test_what_is_no_finished_run_is_refused(leakgauge, one_line, run):
    assert "report.json" in one_line(leakgauge("lab", "reidentify", "nowhere"))
    some = min((run / "cells").iterdir())
    whole = some.read_bytes()
    some.write_bytes(whole[:-1])
    assert f"{some.name} is damaged" in one_line(leakgauge("lab", "reidentify", "run"))
    some.unlink()
    assert "are not there" in one_line(leakgauge("lab", "reidentify", "run"))
    some.write_bytes(whole)
    shutil.rmtree(run / "cells")
    assert "pictures" in one_line(leakgauge("lab", "reidentify", "run"))


def test_steps_must_be_some(leakgauge, one_line, run):
    assert "steps" in one_line(leakgauge("lab", "reidentify", "run", "--steps", 0))
