"""A folder full of modules named like the standard library's and our dependencies': none of them is ever run."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MARK = "import os\nopen(os.environ['MARK'], 'a').write(__name__ + '\\n')\nraise SystemExit(66)\n"
HERE = {"leakgauge", "__main__"}  # whoever writes `python -m leakgauge` beside a leakgauge.py asks for it
EVERY = """
import sys
from leakgauge.cli.commands import every
from leakgauge.cli.main import main
for words in every():
    assert main([*words, "--help"]) == 0, words
for words in (
    "list attacks", "attack linear --model mlp --data digits --trials 1 --out a", "inspect mlp --data digits",
    "triage --model mlp --data digits", "data list", "lab reproduce wei2020cpl --list",
    "train --data digits --model mlp:hidden=4 --defense gaussian:std=0.1 --rounds 1",
    "audit --model mlp --data digits --attacks linear --defenses none --trials 1 --out b",
    "report b --out e", "bench --help",
):
    assert main(words.split()) == 0, words
"""


@pytest.fixture
def folder(tmp_path):
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    names = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions()) | {"sitecustomize"}
    for name in names - HERE:
        if name.isidentifier():
            (hostile / f"{name}.py").write_text(MARK)
    return hostile


def run(folder, *command):
    environment = {**os.environ, "MARK": str(folder.parent / "mark"), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    mark = Path(environment["MARK"])
    assert not mark.exists(), f"{command}: ran {mark.read_text().split()}"
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def program():
    """The command as it is installed beside this Python."""
    beside = Path(sys.executable).with_name("leakgauge")
    return str(beside) if beside.exists() else shutil.which("leakgauge")


def test_no_command_runs_what_lies_in_the_folder(folder):
    run(folder, sys.executable, "-P", "-c", EVERY)


def test_neither_do_the_installed_program_and_its_workers(folder):
    if program() is None:
        pytest.skip("the leakgauge command is not installed")
    words = "audit --model mlp --data digits --attacks linear --defenses none --trials 4 --workers 2 --out c"
    run(folder, program(), *words.split())


def test_nor_the_module_run_by_python(folder):
    """What Python itself imports to find a module is beyond us; `python -P -m leakgauge` or the program are not."""
    own = subprocess.run([sys.executable, "-P", "-c", "import runpy, sys; print(*sys.modules)"], capture_output=True)
    for name in {full.partition(".")[0] for full in own.stdout.decode().split()}:
        (folder / f"{name}.py").unlink(missing_ok=True)
    run(folder, sys.executable, "-m", "leakgauge", "list", "attacks")


def test_what_the_user_names_is_found_there_and_replaces_nothing(folder):
    """Nor is it found by a library that only tries whether something is installed, such as colorama."""
    package = folder / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "beside.py").write_text("WIDTH = 7\n")
    (package / "net.py").write_text(
        "import json\nfrom torch import nn\nfrom mine.beside import WIDTH\n\n"
        "def net(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_classes))\n"
    )
    words = "attack linear --model mine.net:net --data digits --trials 1 --out d"
    run(folder, program() or sys.executable, *([] if program() else ["-m", "leakgauge"]), *words.split())
