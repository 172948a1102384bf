"""The command line, called in this process: exit code, stdout and stderr of one command."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():  # typer 0.20 imports names that click 8.5 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from leakgauge.cli import main

SMALL = ("--model", "mlp:hidden=16", "--data", "digits", "--trials", "2")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """All of stdout is one JSON document."""
        return json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


Command = Callable[..., Outcome]


@pytest.fixture
def leakgauge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """leakgauge("attack", "linear", ...) in a folder of its own, with no data sets but the embedded ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))  # modules of the user's are looked for beside it
    monkeypatch.setenv("LEAKGAUGE_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        told = capsys.readouterr()
        return Outcome(code, told.out, told.err)

    return run


@pytest.fixture
def small() -> tuple[str, ...]:
    """The quickest victim there is: a tiny MLP on digits, two trials."""
    return SMALL


@pytest.fixture
def files_in() -> Callable[[Path], list[str]]:
    """Files under a folder, by name; none if it is not there."""
    return lambda folder: sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.fixture
def one_line() -> Callable[[Outcome], str]:
    """Exit code 2 and one line that a stranger can act on: no traceback, no more, nothing on stdout."""

    def check(outcome: Outcome) -> str:
        assert outcome.code == 2, outcome
        assert outcome.out == ""
        (line,) = outcome.err.splitlines()
        assert line.startswith("leakgauge: ")
        assert "Traceback" not in line
        return line

    return check
