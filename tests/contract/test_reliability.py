"""What docs/explanation/reliability.md promises of runs is held by tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "reliability.md").read_text(encoding="utf-8")
TRIED = (ROOT / "docs" / "results" / "reliability.md").read_text(encoding="utf-8")
PROMISES = re.findall(r"^\| (.+) \| (.+) \| (`.+`) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tests|benchmarks)/[\w/.-]+)`", PAGE + TRIED))))
def test_every_file_it_names_is_there(path):
    assert (ROOT / path).exists()


def test_every_promise_of_a_run_names_what_holds_it():
    begun = PAGE.partition("| what happens | what becomes of the run | held by |")[2].partition("\n\n")[0]
    rows = [row for row in begun.splitlines() if row.startswith("| ")]
    assert len(rows) == len([p for p in PROMISES if "tests/" in p[2]]) >= 15
