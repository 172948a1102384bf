"""Two processes never work on the same thing, and a dead one holds nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack

import pytest

from leakgauge.errors import BadInput
from leakgauge.execution import locks
from leakgauge.execution.locks import claimed

pytest.importorskip("fcntl")
HOLD = """
import sys, time
from pathlib import Path
from leakgauge.execution.locks import claimed
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


COUNT = """
import sys, time
from pathlib import Path
from leakgauge.execution.locks import claimed
path = Path(sys.argv[1])
for _ in range(60):
    with claimed(path, wait=True):
        number = int(path.read_text())
        time.sleep(0.001)
        path.write_text(str(number + 1))  # lost where two hold it
"""


def test_many_who_wait_hold_it_one_at_a_time(tmp_path):
    """Who removed the lock before freeing it let one waiter have the old file and another a new one."""
    path = tmp_path / "number"
    path.write_text("0")
    every = [subprocess.Popen([sys.executable, "-c", COUNT, str(path)]) for _ in range(5)]
    assert [process.wait() for process in every] == [0] * 5
    assert path.read_text() == "300"
    assert [p.name for p in tmp_path.iterdir()] == ["number"]


def test_who_waits_is_told_for_whom_and_how_long(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_LONG", 0.1)
    told: list[str] = []
    holder = ExitStack()
    holder.enter_context(claimed(tmp_path / "work", wait=True))

    def notice(line: str) -> None:
        told.append(line)
        if len(told) == 2:
            holder.close()

    with claimed(tmp_path / "work", wait=True, notice=notice) as mine:
        assert mine
    words = rf"waiting for \.work\.lock, which process {os.getpid()} \(for \d+ s\) holds; \d+ s so far"
    assert re.fullmatch(words, told[0])


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".work.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(BadInput, match="writable"), claimed(tmp_path / "work", wait=True):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_pipe_in_its_place_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / ".work.lock")
    with pytest.raises(BadInput, match="no regular file"), claimed(tmp_path / "work", wait=False):
        raise AssertionError("it cannot be held")
