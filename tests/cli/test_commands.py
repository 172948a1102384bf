"""Commands are named without being loaded, and each says there what it says itself."""

import re
import resource
import subprocess
import sys

import pytest

from leakgauge.cli.commands import HOMES, loaded

COSTS = """
import resource, sys
from leakgauge.cli.main import main
code = main(sys.argv[1:])
heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "code"), [("--help", 0), ("--version", 0), ("--no-such", 2), ("no-such", 2), ("", 2)]
)
def test_nothing_heavy_is_loaded_where_no_command_runs(words, code):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    ended = subprocess.run([sys.executable, "-c", COSTS, *words.split()], capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 2  # half a second where nothing else runs


@pytest.mark.parametrize("name", HOMES)
def test_the_list_says_of_a_command_what_the_command_says_of_itself(name):
    told = (loaded(name).help or "").replace("\n", " ")
    about = HOMES[name].about.replace("\n", " ")
    assert about
    assert re.sub(r"\s+", " ", told).startswith(about)


def test_the_help_lists_them_all(leakgauge):
    shown = leakgauge("--help").out
    assert [name for name in HOMES if not re.search(rf"^│ {name} ", shown, re.MULTILINE)] == []


def test_a_name_that_is_nearly_one_is_told(leakgauge, one_line):
    assert "did you mean 'audit'" in one_line(leakgauge("audt")).lower()
