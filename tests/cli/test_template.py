"""`leakgauge audit --init`: the file it writes holds every key, is valid, and runs."""

from __future__ import annotations

import dataclasses
import re
import tomllib

from leakgauge.cli.template import TEMPLATE
from leakgauge.types import SECTIONS, Scenario


def uncommented() -> dict:
    """The template with its optional keys switched on."""
    return tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", TEMPLATE, flags=re.MULTILINE))


def test_every_key_is_there_and_no_other():
    given = uncommented()
    assert set(given) == {f.name for f in dataclasses.fields(Scenario)}
    for name, section in SECTIONS.items():
        assert set(given[name]) == {f.name for f in dataclasses.fields(section)}


def test_every_line_has_its_comment():
    for line in TEMPLATE.splitlines():
        assert not line or "#" in line, line


def test_what_is_written_runs_as_it_is(leakgauge, tmp_path, small_suite):
    small_suite("quick", 1, ("labels", "idlg:steps=1"), ())
    outcome = leakgauge("audit", "--init")
    assert outcome.code == 0
    assert (tmp_path / "scenario.toml").read_text() == TEMPLATE
    outcome = leakgauge("audit", "scenario.toml", "--json", "--out", "run")
    assert outcome.code == 0, outcome.err
    assert outcome.json["scenario"]["suite"] == "quick"


def test_a_file_that_is_there_is_left_alone(leakgauge, tmp_path, one_line):
    (tmp_path / "mine.toml").write_text("seed = 3\n")
    assert "existing file" in one_line(leakgauge("audit", "--init", "mine.toml"))
    assert (tmp_path / "mine.toml").read_text() == "seed = 3\n"
