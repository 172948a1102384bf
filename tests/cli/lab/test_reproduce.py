"""`leakgauge lab reproduce`: reported beside measured, resumed, and one clear line for what is not there."""

from __future__ import annotations

import dataclasses
import json

import pytest

from leakgauge.lab import recipes
from leakgauge.lab.recipes import _running
from leakgauge.lab.recipes._recipe import Cell, Recipe, Run, Study, Table
from leakgauge.lab.recipes._training import FederatedTraining
from leakgauge.types import Federation, Partition, Scenario


def run_of(**more) -> Run:
    return Run(Scenario(**{"model": "mlp:hidden=16", "data": "digits", "attacks": ("linear",), "trials": 2} | more))


SMALL = Recipe(
    name="small",
    summary="Two tables",
    paper="Nobody 2020, Nothing",
    note="All of it is made up.",
    tables=(
        Table("1", "bare", "as ever.", "A note.", (Cell("linear", "digits", run_of(), {"psnr": 30.0}, quick=1),)),
        Table("2", "faces", "as ever.", "A note.", (Cell("linear", "LFW", run_of(data="lfw"), {"psnr": 20.0}),)),
    ),
)


@pytest.fixture
def reproduce(leakgauge, monkeypatch):
    """The command, in a house with one small recipe."""
    monkeypatch.setattr(recipes, "find", lambda: {"small": SMALL})
    return lambda *arguments: leakgauge("lab", "reproduce", *arguments)


def test_tables_are_printed_and_written_reported_beside_measured(reproduce, tmp_path):
    outcome = reproduce("small", "--table", 1)
    assert outcome.code == 0
    assert "Table 1: bare" in outcome.out
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("linear"))
    assert "30.00" in line
    folder = tmp_path / "leakgauge-runs" / "small"
    (cell,) = json.loads((folder / "measured.json").read_text())["cells"]
    assert cell["reported"] == 30.0
    assert cell.keys() >= {
        "table",
        "row",
        "column",
        "statistic",
        "value",
        "low",
        "high",
        "trials",
        "failed",
        "seconds",
        "device",
        "version",
        "commit",
        "seed",
        "state",
    }
    assert "PSNR, dB: 30.00 →" in (folder / "README.md").read_text()
    assert len(list((folder / "runs").iterdir())) == 1


def test_json_is_one_document(reproduce):
    outcome = reproduce("small", "--json", "--quick")
    assert outcome.json["recipe"] == "small"
    (cell,) = outcome.json["cells"]
    assert (cell["trials"], cell["statistic"]) == (1, "psnr")
    assert outcome.json["left_out"] == []


def test_data_that_is_not_here_leaves_its_cell_empty(reproduce):
    outcome = reproduce("small")
    assert outcome.code == 0
    (line,) = (line for line in outcome.err.splitlines() if line.startswith("leakgauge: "))
    assert line.startswith("leakgauge: 1 run left out: data set 'lfw'")


def test_nothing_could_run_is_exit_code_two(reproduce, tmp_path):
    outcome = reproduce("small", "--table", 2, "--json")
    assert outcome.code == 2
    assert outcome.json["cells"] == []
    assert not (tmp_path / "leakgauge-runs" / "small" / "measured.json").exists()


def test_two_processes_can_share_a_runs_folder(reproduce, tmp_path, monkeypatch):
    """The second finds the first one's runs and writes the cells of both."""
    both = ("--runs", "shared")
    reproduce("small", "--table", 1, *both, "--out", "one")
    monkeypatch.setattr(_running, "run_audit", lambda *_, **__: pytest.fail("ran again"))
    outcome = reproduce("small", "--table", 1, *both, "--out", "two")
    assert outcome.code == 0
    assert (tmp_path / "one" / "measured.json").read_text() == (tmp_path / "two" / "measured.json").read_text()


def test_a_quick_look_does_not_replace_the_full_measurement(reproduce, tmp_path):
    reproduce("small", "--table", 1)
    measured = tmp_path / "leakgauge-runs" / "small" / "measured.json"
    full = measured.read_text()
    assert reproduce("small", "--quick").code == 0
    assert measured.read_text() == full


def test_list_runs_nothing_and_tells_the_cost(reproduce, tmp_path):
    outcome = reproduce("small", "--list")
    assert outcome.code == 0
    assert "1 | linear | digits" in outcome.out
    assert "gradient evaluations at most" in outcome.out
    listed = reproduce("small", "--list", "--json", "--trials", 5).json
    assert listed["cost"]["all"] == {"cells": 2, "runs": 2, "finished": 0, "victims": 10, "evaluations": 10}
    assert not (tmp_path / "leakgauge-runs").exists()


def test_render_writes_the_page_anew_and_runs_nothing(reproduce, tmp_path):
    reproduce("small", "--table", 1)
    page = tmp_path / "leakgauge-runs" / "small" / "README.md"
    text = page.read_text()
    page.write_text("lost")
    assert reproduce("small", "--render").code == 0
    assert page.read_text() == text
    assert reproduce("small", "--render", "--runs", "none", "--out", "nowhere").code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("smal",), "recipe must be one of small, got 'smal'; did you mean 'small'?"),
        (("small", "--table", "9"), "table of small must be one of 1, 2, got '9'"),
        (("small", "--cell", "1 | linear | digts"), "did you mean '1 | linear | digits'?"),
        (("small", "--trials", "0"), "trials"),
        (("small", "--device", "quantum"), "device must be auto, cpu or a CUDA device"),
    ],
)
def test_mistakes_are_one_line(reproduce, one_line, tmp_path, arguments, said):
    assert said in one_line(reproduce(*arguments))
    assert not list(tmp_path.rglob("*.json"))


def test_an_interrupt_keeps_finished_runs(reproduce, tmp_path, monkeypatch):
    real = _running.run_one

    def interrupted(scenario, *rest):
        if scenario.data == "lfw":
            raise KeyboardInterrupt
        return real(scenario, *rest)

    monkeypatch.setattr(_running, "run_one", interrupted)
    outcome = reproduce("small")
    assert outcome.code == 130
    assert "interrupted" in outcome.err
    assert (tmp_path / "leakgauge-runs" / "small" / "measured.json").is_file()


def test_a_training_is_listed_run_and_written_like_an_attack(leakgauge, monkeypatch, tmp_path):
    training = FederatedTraining(
        model="mlp:hidden=8",
        data="digits",
        defense="sign",
        partition=Partition(kind="iid", clients=4),
        federation=Federation(rounds=3, per_round=2),
    )
    cell = Cell("sign", "digits", Study(training), {"accuracy": 0.9, "slower": None}, quick=2)
    trained = dataclasses.replace(SMALL, tables=(*SMALL.tables, Table("cost", "cost", "as ever.", "A note.", (cell,))))
    monkeypatch.setattr(recipes, "find", lambda: {"small": trained})
    listed = leakgauge("lab", "reproduce", "small", "--list", "--table", "cost", "--json").json
    assert listed["cost"]["all"] == {"cells": 1, "runs": 1, "finished": 0, "victims": 0, "evaluations": 0}
    assert listed["cells"][0]["measurement"]["defense"] == "sign"
    assert (
        "training with sign of mlp:hidden=8, digits: 3 rounds" in leakgauge("lab", "reproduce", "small", "--list").out
    )
    done = leakgauge("lab", "reproduce", "small", "--table", "cost", "--quick", "--json").json
    assert [(c["statistic"], c["trials"]) for c in done["cells"]] == [("accuracy", 2), ("slower", 2)]
    page = (tmp_path / "leakgauge-runs" / "small" / "README.md").read_text()
    assert "n = 2 rounds; 2 of 4 clients in each" in page


def test_rendering_where_nothing_was_measured_says_so(leakgauge, one_line):
    assert "nothing in 'empty'" in one_line(leakgauge("lab", "reproduce", "zhu2019dlg", "--render", "--out", "empty"))


def test_flags_that_would_do_nothing_are_refused(leakgauge, one_line):
    for flags in (("--list", "--render"), ("--render", "--fresh")):
        assert "got both" in one_line(leakgauge("lab", "reproduce", "zhu2019dlg", *flags))
