"""`leakgauge lab reproduce`: reported beside measured, resumed, and one clear line for what is not there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from leakgauge.lab import recipes
from leakgauge.lab.reproduce import running
from leakgauge.lab.reproduce.budget import Budget
from leakgauge.lab.reproduce.queue_file import read_queue
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Run, Study, Table
from leakgauge.lab.reproduce.training import FederatedTraining
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
    monkeypatch.setattr(running, "run_audit", lambda *_, **__: pytest.fail("ran again"))
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
    real = running.run_one

    def interrupted(scenario, *rest):
        if scenario.data == "lfw":
            raise KeyboardInterrupt
        return real(scenario, *rest)

    monkeypatch.setattr(running, "run_one", interrupted)
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


def test_a_time_budget_says_what_was_left_and_the_next_command_goes_on(reproduce, monkeypatch):
    monkeypatch.setattr(Budget, "is_open", False)
    outcome = reproduce("small", "--table", 1, "--time-budget", 100, "--json")
    assert outcome.code == 0
    assert outcome.json["left_for_want_of_time"] == 1
    assert "1 run left for lack of time" in outcome.err


def test_enough_time_leaves_nothing(reproduce):
    outcome = reproduce("small", "--table", 1, "--time-budget", 100, "--json")
    assert (outcome.json["left_for_want_of_time"], len(outcome.json["cells"])) == (0, 1)
    assert "lack of time" not in outcome.err


@pytest.mark.parametrize("bad", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_budget_is_a_number_of_seconds(reproduce, one_line, bad):
    assert "time-budget" in one_line(reproduce("small", "--time-budget", bad))


def test_missing_leaves_out_what_is_measured_as_well(reproduce, tmp_path, monkeypatch):
    assert reproduce("small", "--table", 1).code == 0
    monkeypatch.setattr(running, "run_audit", lambda *_, **__: pytest.fail("ran again"))
    again = ("small", "--table", 1, "--missing", "--runs", "elsewhere")
    outcome = reproduce(*again)
    assert outcome.code == 0
    assert "nothing to run" in outcome.err
    assert reproduce(*again, "--json").json["cells"] == []
    wanted = reproduce(*again, "--trials", 3, "--list", "--json").json
    assert wanted["cost"]["all"]["cells"] == 1, "two victims do not stand for three"


@pytest.fixture
def queue(tmp_path, reproduce):
    """The command on a queue of these lines."""

    def run(*lines, more=()):
        path = tmp_path / "queue.txt"
        path.write_text("\n".join(lines) + "\n")
        return reproduce("--queue", path, *more)

    return run


def test_a_queue_runs_its_lines_in_order_each_recipe_in_its_folder(queue, tmp_path, monkeypatch):
    order = []
    real = running.run_one
    monkeypatch.setattr(running, "run_one", lambda piece, *rest: order.append(piece) or real(piece, *rest))
    lines = ("# worth most", "small | 1 | linear | * | trials=3", "", "small | 1 | * | digits  # all of it")
    outcome = queue(*lines, more=("--runs", "kept", "--out", "written", "--json"))
    assert outcome.code == 0
    assert [piece.trials for piece in order] == [3, 2]
    assert [part["recipe"] for part in outcome.json["recipes"]] == ["small", "small"]
    assert len(list((tmp_path / "kept" / "small" / "runs").glob("*.json"))) == 2
    (cell,) = json.loads((tmp_path / "written" / "small" / "measured.json").read_text())["cells"]
    assert cell["trials"] == 3, "the smaller one does not replace it"


def test_a_queue_has_one_time_budget(queue, monkeypatch):
    monkeypatch.setattr(Budget, "is_open", False)
    outcome = queue("small | 1 | * | *", "small | 2 | * | *", more=("--time-budget", 9, "--json"))
    assert outcome.json["left_for_want_of_time"] == 2


def test_a_queue_is_listed_line_by_line(queue, tmp_path):
    outcome = queue("small | 1 | * | *", more=("--list",))
    assert "1 | linear | digits" in outcome.out
    assert not (tmp_path / "leakgauge-runs").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("smal | 1 | * | *", "line 2 of queue.txt: recipe must be one of small, got 'smal'; did you mean 'small'?"),
        ("small | 1 | linear | digts", "did you mean '1 | linear | digits'?"),
        ("small | 1 | linear", "line 2 of queue.txt must be RECIPE | table | row | column"),
        ("small | 1 | * | * | trails=3", "did you mean trials?"),
        ("small | 1 | * | * | trials=0", "from 1, got 'trials=0'"),
        ("small | 1 | * | * | trials=", "from 1, got 'trials='"),
    ],
)
def test_a_wrong_line_is_refused_before_anything_runs(queue, one_line, tmp_path, line, said):
    assert said in one_line(queue("small | 1 | * | *", line)).replace(f"{tmp_path}/", "")
    assert not list(tmp_path.rglob("*.json"))


def test_a_queue_file_that_is_none_is_one_line(reproduce, queue, one_line, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for path in ("nowhere", "bytes", tmp_path):
        assert "--queue must be a text file" in one_line(reproduce("--queue", path))
    assert "a file with lines" in one_line(queue("# nothing"))
    assert "a recipe's name" in one_line(queue("small | 1 | * | *", more=("small",)))
    assert "--cell" in one_line(queue("small | 1 | * | *", more=("--cell", "*")))
    assert "the name of one" in one_line(reproduce())


def test_the_projects_own_queue_names_cells_that_exist():
    entries = read_queue(Path(__file__).parents[3] / "benchmarks" / "gpu-queue.txt")
    assert {"ren2022grnn", "wang2023mkor", "wang2022protect", "drabent2022ats", "ren2022fedkl", "wei2020cpl"} <= {
        entry.recipe.name for entry in entries
    }
