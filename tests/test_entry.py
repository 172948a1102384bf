"""The program ends with a line and a code also where a library ends it."""

import os
import resource
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are set as Linux has them")
BEGUN = "import sys, leakgauge.entry as e; e._run = lambda: {}; sys.exit(e.main())"


def run(what, gigabytes=4.0):
    limit = int(gigabytes * 2**30)
    return subprocess.run(
        [sys.executable, "-P", "-c", BEGUN.format(what)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )


@pytest.mark.parametrize("number", ["SIGSEGV", "SIGABRT", "SIGBUS"])
def test_a_library_that_ends_for_want_of_memory_is_said_in_one_line(number):
    ended = run(f"__import__('os').kill(__import__('os').getpid(), __import__('signal').{number})")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("leakgauge: address space must be enough for this, got 4.0 GiB")
    assert number in line


@pytest.mark.parametrize("code", [0, 1, 2, 70, 130])
def test_other_ends_stay_as_they_are(code):
    ended = run(code)
    assert (ended.returncode, ended.stderr) == (code, "")


def test_a_kill_from_outside_is_no_want_of_memory():
    ended = run("__import__('os').kill(__import__('os').getpid(), 9)")
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGKILL, "")


def test_too_small_a_limit_is_refused_before_anything_is_loaded():
    ended = run("__import__('os').abort()", gigabytes=0.5)
    assert ended.returncode == 2
    assert "1 GiB or more, got 0.5 GiB" in ended.stderr


def test_without_a_limit_there_is_no_second_process():
    inside = run("int(__import__('os').getppid() != " + str(os.getpid()) + ")", gigabytes=2**20)
    assert inside.returncode == 1, "a limit was set: the command runs beside the one that watches it"
    free = subprocess.run(
        [sys.executable, "-P", "-c", BEGUN.format(f"int(__import__('os').getppid() != {os.getpid()})")], check=False
    )
    assert free.returncode == 0


def test_want_of_memory_while_it_is_told_is_still_one_line():
    ended = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "import sys, leakgauge.cli.main, leakgauge.entry as e\n"
            "def none(): raise MemoryError\n"
            "sys.modules['leakgauge.cli.main'].main = none\nsys.exit(e.main())",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "leakgauge: memory must be enough for this, got none; give the process more\n"
