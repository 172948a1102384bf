"""What the README shows works: `$ leakgauge ...` of a console block prints what is shown, each Python block too."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from leakgauge.cli import main

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.is_file() else ""
FAILS = "# exits with 1"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Command lines in the order shown, each with its output; a backslash at a line's end continues a command."""
    shown = "\n".join(blocks("console")).replace("\\\n", " ")
    return re.findall(r"^\$ (leakgauge .*)\n((?:[^$\n].*\n)*)", shown, re.MULTILINE)


def rounded(text: str) -> list[str]:
    """Lines without their numbers: the last digits and the times are a machine's own."""
    return [" ".join(re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", line).split()) for line in text.splitlines()]


@pytest.fixture(scope="module")
def readers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, because a later command may use what an earlier one wrote."""
    return tmp_path_factory.mktemp("reader")


def test_readme_shows_commands_and_the_two_that_set_up_everything() -> None:
    assert README.is_file()
    assert examples(), "no `$ leakgauge ...` in any ```console block"
    assert "make audit" in TEXT
    assert "make test" in TEXT


def test_readme_fits_a_screen_and_leads_to_the_four_kinds() -> None:
    assert len(TEXT.splitlines()) <= 70
    for kind in ("tutorial", "how-to", "reference", "explanation"):
        assert f"](docs/{kind}/" in TEXT
    for target in re.findall(r"(?:\]\(|src=\")([\w/.-]+)", TEXT):
        assert target.startswith("http") or (README.parent / target).is_file(), target


@pytest.mark.parametrize(("command", "output"), examples())
def test_command_of_the_readme_prints_what_is_shown(
    command: str, output: str, readers_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(readers_folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    arguments = shlex.split(command, comments=True)[1:]
    assert ">" not in arguments, "redirections are not run here; show the command without"
    assert "|" not in arguments, "pipes are not run here; show the command without"
    code = main(arguments)
    printed = capsys.readouterr()
    assert code == (1 if FAILS in command else 0), printed.err
    assert [line for line in rounded(output) if line not in rounded(printed.out)] == []


@pytest.mark.parametrize("block", blocks("python"))
def test_python_of_the_readme_prints_what_is_shown(
    block: str, readers_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(readers_folder)
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert printed
    assert all(f"# {line}\n" in block for line in printed.splitlines())
