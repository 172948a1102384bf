"""Two processes never work on the same thing, and a dead one holds nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leakgauge.claiming import claimed

pytest.importorskip("fcntl")
HOLD = """
import sys, time
from pathlib import Path
from leakgauge.claiming import claimed
with claimed(Path(sys.argv[1]), wait=True):
    print("mine", flush=True)
    time.sleep(60)
"""


def test_a_claim_is_exclusive_and_leaves_nothing(tmp_path):
    path = tmp_path / "run.json"
    with claimed(path, wait=False) as first, claimed(path, wait=False) as second:
        assert (first, second) == (True, False)
    assert list(tmp_path.iterdir()) == []
    with claimed(path, wait=False) as again:
        assert again


def test_the_claim_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / "run.json"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        with claimed(path, wait=False) as mine:
            assert not mine
        other.kill()
    with claimed(path, wait=True) as mine:
        assert mine
