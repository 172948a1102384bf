"""Whole runs that are killed, doubled or out of disk: real processes, the same command again, the same report."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

TRIALS = 70  # three chunks of a cell
AUDIT = (
    "audit",
    "--model",
    "mlp:hidden=16",
    "--data",
    "digits",
    "--trials",
    TRIALS,
    "--defenses",
    "none",
    "--device",
    "cpu",
    "--attacks",
    "linear dlg:steps=5,restarts=1",
    "--out",
    "run",
    "--json",
)


@contextmanager
def process(folder, *arguments, **how):
    """A command in a process of its own group; nothing of it is left afterwards."""
    running = subprocess.Popen(
        [sys.executable, "-m", "leakgauge", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **{"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)} | how,
    )
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


def wait_for(condition, seconds=120.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)


def timeless(report):
    """The report as text, apart from times; and from the commit, for somebody may make one meanwhile."""

    def without(value):
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k not in ("seconds", "commit")}
        return [without(v) for v in value] if isinstance(value, list) else value

    return json.dumps(without(report))


_UNDISTURBED: list[str] = []  # measured once


@pytest.fixture
def undisturbed(leakgauge):
    if not _UNDISTURBED:
        outcome = leakgauge(*("undisturbed" if word == "run" else word for word in AUDIT))
        assert outcome.code == 0
        _UNDISTURBED.append(timeless(outcome.json))
    return _UNDISTURBED[0]


def kept(folder):
    return sorted(p.name for p in (folder / "run" / "cells").glob("*.safetensors"))


def test_killed_in_the_middle_the_same_command_gives_the_same_report(leakgauge, undisturbed, tmp_path):
    """Together with its workers' starter: they end by themselves, and what they had finished is not run again."""
    with process(tmp_path, *AUDIT, "--workers", 2) as running:
        wait_for(lambda: len(kept(tmp_path)) >= 4)
        workers = _children(running.pid)
        running.kill()
        running.wait()
        before = kept(tmp_path)
        wait_for(lambda: not any(_alive(pid) for pid in workers))
    assert len(before) < 12
    again = leakgauge(*AUDIT)
    assert again.code == 0
    assert timeless(again.json) == undisturbed
    assert set(before) <= set(kept(tmp_path))
    assert len(kept(tmp_path)) == 12, "four cells of three chunks, each once"


def test_two_processes_on_one_run_directory_share_the_work(undisturbed, tmp_path):
    with process(tmp_path, *AUDIT) as one, process(tmp_path, *AUDIT) as two:
        reports = [running.communicate(timeout=120)[0] for running in (one, two)]
        assert (one.returncode, two.returncode) == (0, 0)
    assert [timeless(json.loads(text)) for text in reports] == [undisturbed] * 2
    assert len(kept(tmp_path)) == 12, "four cells of three chunks, each once"


def test_ctrl_c_ends_all_workers_and_keeps_what_is_finished(leakgauge, undisturbed, tmp_path):
    with process(tmp_path, *AUDIT, "--workers", 2) as running:
        wait_for(lambda: len(kept(tmp_path)) >= 2)
        workers = _children(running.pid)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does it
        out, err = running.communicate(timeout=60)
        wait_for(lambda: not any(_alive(pid) for pid in workers), 10)  # Python's own resource tracker leaves after us
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("leakgauge: interrupted")
    assert json.loads(out)["interrupted"] is True
    assert timeless(leakgauge(*AUDIT).json) == undisturbed


def test_a_disk_that_fills_up_is_one_line_and_the_run_goes_on_from_there(leakgauge, undisturbed, tmp_path):
    """No file may grow beyond 22 kB: the truth fits, and the findings of 32 trials do not."""

    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (22_000, 22_000))

    with process(tmp_path, *AUDIT, preexec_fn=little_room) as running:
        out, err = running.communicate(timeout=120)
    assert running.returncode == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("leakgauge: output ")
    assert not [p.name for p in (tmp_path / "run").rglob("*.part")]
    assert timeless(leakgauge(*AUDIT).json) == undisturbed


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--workers", -1), "workers must be a whole number from 1"),
        (("--workers", 2, "--worker-memory", "lots"), "--worker-memory must be a size such as 4GB"),
        (("--worker-memory", "4GB"), "--worker-memory must be used with --workers"),
    ],
)
def test_bad_flags_are_one_line(leakgauge, one_line, flags, said):
    assert said in one_line(leakgauge(*AUDIT, *flags))


def _children(pid):
    path = f"/proc/{pid}/task/{pid}/children"
    if not os.path.exists(path):
        return []
    with open(path) as children:
        return [int(child) for child in children.read().split()]


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
