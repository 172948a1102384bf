"""`leakgauge lab detection`: a small study, and what it refuses."""

import json

import pytest

from leakgauge.cli.lab import detection as command
from leakgauge.cli.main import main
from leakgauge.lab.detection.cases import Case


def few(family: str, server: str = "") -> list[Case]:
    return [Case(family, bool(server), "mlp:activation=relu", "digits", 0, "", server, seed) for seed in range(4)]


def test_a_small_study(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "clean_cases", lambda *_: few("clean, untrained"))
    monkeypatch.setattr(command, "tampered_cases", lambda *_: [*few("mkor, naive", "mkor"), *few("imprint", "imprint")])
    assert main(["lab", "detection", "--clean", "4", "--per-server", "2", "--json", "--out", str(tmp_path / "d")]) == 0
    study = json.loads(capsys.readouterr().out)
    assert {row["family"] for row in study["rows"]} == {"clean, all", "clean, untrained", "mkor, naive", "imprint"}
    assert (tmp_path / "d" / "README.md").is_file()


@pytest.mark.parametrize("arguments", [["--clean", "1"], ["--per-server", "0"], ["--arms-race", "-1"]])
def test_sizes_that_say_nothing_are_refused(capsys, arguments):
    assert main(["lab", "detection", *arguments]) == 2
    assert "at least" in capsys.readouterr().err
