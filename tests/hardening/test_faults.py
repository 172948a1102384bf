"""Each call that writes fails once, in turn: the run says so in one line, and run again it gives the same result."""

import dataclasses
import errno
import io
import os
from contextlib import contextmanager

import pytest

from leakgauge.audit.run import run_audit
from leakgauge.errors import BadInput
from leakgauge.report import write
from leakgauge.types import Scenario

TINY = Scenario(model="mlp:hidden=4", data="breast-cancer", attacks=("linear",), defenses=("prune",), trials=2)
CALLS = ("open", "fsync", "link", "replace", "write")


class Faults:
    """Counts the calls of each kind, and lets one of them fail."""

    def __init__(self, monkeypatch):
        self.counted = dict.fromkeys(CALLS, 0)
        self.failing, self.number, self.error = "", -1, errno.ENOSPC
        for name in ("open", "fsync", "link", "replace"):
            self._wrap(monkeypatch, name)
        real = os.fdopen
        faults = self

        class Writer(io.BufferedWriter):
            def write(self, content):
                faults.called("write")
                return super().write(content)

        def fdopen(handle, mode="r", *rest, **more):
            return Writer(io.FileIO(handle, "wb")) if mode == "wb" else real(handle, mode, *rest, **more)

        monkeypatch.setattr(os, "fdopen", fdopen)

    def _wrap(self, monkeypatch, name):
        real = getattr(os, name)

        def wrapped(*given, **more):
            if name != "open" or given[1] & (os.O_WRONLY | os.O_RDWR):
                self.called(name)
            return real(*given, **more)

        monkeypatch.setattr(os, name, wrapped)

    def called(self, name):
        self.counted[name] += 1
        if name == self.failing and self.counted[name] == self.number:
            raise OSError(self.error, os.strerror(self.error))

    @contextmanager
    def at(self, name, number, error):
        self.counted = dict.fromkeys(CALLS, 0)
        self.failing, self.number, self.error = name, number, error
        try:
            yield
        finally:
            self.failing = ""


def result(folder):
    report, pictures = run_audit(TINY, out=folder, keep_private=True)
    write(report, pictures, folder)
    rows = [dataclasses.replace(f, seconds=0.0) for f in report.findings]
    return rows, report.verdict.sentence, {n: t.tolist() for n, t in pictures.recovered.items()}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full disk", "broken disk"])
@pytest.mark.parametrize("name", CALLS)
def test_no_result_is_lost_or_wrong_whatever_call_fails(name, error, tmp_path, monkeypatch):
    faults = Faults(monkeypatch)
    expected = result(tmp_path / "reference")
    calls = faults.counted[name]
    assert calls > 8
    for number in range(1, calls + 1):
        folder = tmp_path / f"run{number}"
        with faults.at(name, number, error), pytest.raises(BadInput, match="must be writable"):
            result(folder)
        assert not list(folder.rglob("*.part"))
        assert result(folder) == expected
