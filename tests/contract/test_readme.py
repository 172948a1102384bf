"""What the README shows works: every `$ leakgauge ...` in a console block, every Python block."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from leakgauge.cli import main

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.is_file() else ""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Command lines in the order shown; a backslash at a line's end continues it."""
    lines = "\n".join(blocks("console")).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").strip() for line in lines if line.startswith("$ leakgauge ")]


@pytest.fixture(scope="module")
def readers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, because a later command may use what an earlier one wrote."""
    return tmp_path_factory.mktemp("reader")


def test_readme_shows_commands_and_the_two_that_set_up_everything() -> None:
    assert README.is_file()
    assert commands(), "no `$ leakgauge ...` in any ```console block"
    assert "make audit" in TEXT
    assert "make test" in TEXT


@pytest.mark.parametrize("command", commands())
def test_command_of_the_readme_runs(
    command: str, readers_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(readers_folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    arguments = shlex.split(command, comments=True)[1:]
    assert ">" not in arguments, "redirections are not run here; show the command without"
    assert "|" not in arguments, "pipes are not run here; show the command without"
    code = main(arguments)
    told = capsys.readouterr()
    assert code == 0, told.err


@pytest.mark.parametrize("block", blocks("python"))
def test_python_of_the_readme_runs(
    block: str, readers_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(readers_folder)
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
