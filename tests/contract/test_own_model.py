"""A stranger's model (GroupNorm, a skip connection, oblong pictures) by the instructions of one page alone."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leakgauge.cli import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "how-to" / "audit-a-saved-update.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## A complete example")[2].partition("\n## ")[0]


def test_the_page_shows_all_of_it() -> None:
    assert files().keys() == {"my.py", "client.py", "loop.py"}
    assert all(word in files()["my.py"] for word in ("GroupNorm", "x + torch", "6, 10"))


def files() -> dict[str, str]:
    """Blocks that name their file in the first line."""
    blocks = re.findall(r"^```py\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    return {block.splitlines()[0].removeprefix("# "): block for block in blocks}


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with what the page says to write, after the client has run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("my", "client", "loop"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    runpy.run_path("client.py")
    yield tmp_path
    for name in ("my", "client", "loop"):
        sys.modules.pop(name, None)


def test_the_command_audits_it(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = re.findall(r"^```sh\nleakgauge (.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    assert main([*shlex.split(command), "--json", "--out", "run"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["scenario"]["batch_size"] == 2
    assert report["verdict"]["leaks"] is True
    assert {"linear", "peeling", "rgap"} <= {s["attack"] for s in report["skipped"]}
    assert (stranger / "run" / "report.html").is_file()


def test_the_call_in_a_loop_audits_it(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("loop.py")
    assert "recovers 2 of 2 records" in capsys.readouterr().out
