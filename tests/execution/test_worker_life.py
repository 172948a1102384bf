"""A worker ends with its starter, also while it loads, and when it holds more than it may."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from leakgauge.execution.worker_life import OVER_MEMORY, resident_bytes

STARTER = """
import multiprocessing, os, sys, time
from leakgauge.execution.worker_life import _watch
def load(starter):
    import threading
    threading.Thread(target=_watch, args=(starter, None), daemon=True).start()
    time.sleep(60)
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=load, args=(os.getpid(),))
    child.start()
    print(child.pid, flush=True)
    time.sleep(60)
"""
HOLDING = """
from leakgauge.execution.worker_life import _watch
import os, threading, time
threading.Thread(target=_watch, args=(os.getppid(), 200_000_000), daemon=True).start()
held = bytearray(os.urandom(1)) * 400_000_000
time.sleep(60)
"""


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks into /proc")
def test_a_worker_does_not_outlive_its_starter(tmp_path):
    script = tmp_path / "starter.py"
    script.write_text(STARTER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        worker = int(starter.stdout.readline())
        assert is_there(worker)
        starter.kill()
    until = time.monotonic() + 20
    while is_there(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_there(worker)


def test_a_worker_that_holds_too_much_ends_with_a_code_of_its_own():
    assert subprocess.run([sys.executable, "-c", HOLDING], timeout=60, check=False).returncode == OVER_MEMORY


def test_nothing_heavy_is_loaded_before_the_watch():
    loaded = "import sys, leakgauge.execution.worker_life; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0


def test_a_process_knows_what_it_holds():
    before = resident_bytes()
    held = torch.ones(50_000_000)
    assert resident_bytes() - before > 150_000_000
    assert held.sum() == 50_000_000
