"""The changelog keeps its form: one printed line for each change, and the version that is built on top."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_each_change_is_one_line_under_one_of_the_known_headings() -> None:
    entries = [line for line in TEXT.splitlines() if line.startswith(("- ", "  "))]
    assert entries
    assert not [line for line in entries if len(line) > 160 or not line.startswith("- ")]
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", TEXT, re.MULTILINE)) <= kinds


def test_the_version_that_is_built_comes_first_and_has_a_date() -> None:
    versions = re.findall(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", TEXT, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert versions[1][0] == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert all(date for _, date in versions[1:])
