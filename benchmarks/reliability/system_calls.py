"""Every call that changes a file fails once, in turn, in every command that writes; or it is the process's last.

    python benchmarks/reliability/system_calls.py                       # all commands, all faults: about an hour
    python benchmarks/reliability/system_calls.py --only report inspect

Counted are the C library's calls on files of the command's folder, SQLite's among them: opening, writing, making safe
(fsync), renaming, removing, making folders, cutting, locking, closing. The faults of each: a broken disk (EIO), a full
one (ENOSPC), half of a write and a full disk from there on, `kill -9` before the call, and a power cut there: `kill
-9`, then everything that was not made safe is cut to nothing, and files whose names were not are gone. Then the same
command is run again, undisturbed. Needs a C compiler. Prints one JSON document; exits with 1 if anything was lost,
wrong or silent:

- silent: the fault ended neither in one line and exit code 2 nor in the whole result
- wrong: run again, the command does not give the result of an undisturbed one
- lost: a file that was finished before the fault was made again
- left: parts of files lie there afterwards
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

LAYER = "LEAKGAUGE_FAULTY_CALLS"
KINDS = ("open", "write", "fsync", "rename", "unlink", "mkdir", "truncate", "lock", "close", "link")
KILL, HALF, CUT = -1, -2, -3
FAULTS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "half": HALF, "kill": KILL, "power": CUT}
_FEW = {  # where others cannot be
    "half": ("write",),
    "ENOSPC": ("open", "write", "fsync", "rename", "mkdir", "close", "link"),
}


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--faults", nargs="*", default=list(FAULTS))
    asked.add_argument("--most", type=int, default=1000, help="calls of a kind in a command; of more, so many evenly")
    given = asked.parse_args()
    if LAYER not in os.environ:
        return _with_layer()
    import torch
    from write_paths import WRITE_PATHS

    torch.set_num_threads(1)
    layer, rows, bad = ctypes.CDLL(None), {}, []
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in WRITE_PATHS.items():
            if not given.only or name in given.only:
                began = time.monotonic()
                rows[name], shown = _tried(path, Path(scratch).resolve() / name, layer, given.faults, given.most)
                rows[name] |= {"seconds": round(time.monotonic() - began)}
                bad += [f"{name}: {line}" for line in shown]
                sys.stderr.write(f"{name}: {rows[name]}\n" + "".join(f"  {line}\n" for line in shown))
    total: Counter[str] = Counter()
    for row in rows.values():
        total.update(row)
    sys.stdout.write(json.dumps({"commands": rows, "total": total, "bad": bad}, indent=1) + "\n")
    return int(any(total[word] for word in ("silent", "wrong", "lost", "left")))


def _with_layer() -> int:
    """The same again with the layer before the C library."""
    source = Path(__file__).with_name("faulty_calls.c")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "faulty_calls.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True)
        environment = {**os.environ, LAYER: "1", "LD_PRELOAD": str(built), "OMP_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


def _tried(path: Any, scratch: Path, layer: Any, faults: list[str], most: int) -> tuple[dict[str, Any], list[str]]:
    """One command: what was injected and what came of it, and a line for each that went wrong."""
    from write_paths import result, run

    def begin(number: str) -> Path:
        folder = scratch / number
        if kept.exists():
            shutil.copytree(kept, folder, symlinks=True)
        else:
            folder.mkdir(parents=True)
        return folder

    kept = scratch / "before"
    first = begin("first")
    path.prepare(first)
    for words in path.before:
        code, said = run(words, first)
        assert code == 0, said
    shutil.copytree(first, kept)
    counted, log = first / "counted", scratch / "log"

    def count() -> None:
        layer.faulty_arm(os.fsencode(first), -1, 0, 0, -1)

    code, said = run(path.words, first, count, lambda: counted.write_text(json.dumps(_counts(layer))))
    assert code == 0, said
    calls = dict(zip(KINDS, json.loads(counted.read_text()), strict=True))
    counted.unlink()
    expected, told, shown = result(first), Counter[str](calls=sum(calls.values())), []
    shutil.rmtree(first)
    for kind, fault in ((k, f) for k in KINDS for f in faults if k in _FEW.get(f, KINDS)):
        for number in sorted({1 + i * calls[kind] // most for i in range(most)} if calls[kind] else ()):
            where = f"{kind} {number} {fault}"
            folder = begin("run")
            log.write_text("")

            def arm(folder: Path = folder, kind: str = kind, number: int = number, fault: str = fault) -> None:
                handle = os.open(log, os.O_WRONLY | os.O_APPEND)
                what = KILL if fault == "power" else FAULTS[fault]
                layer.faulty_arm(os.fsencode(folder), KINDS.index(kind), number, what, handle)

            code, said = run(path.words, folder, arm, layer.faulty_disarm)
            told["injected"] += 1
            told["kills"] += code == -9
            if fault == "power":
                _cut(folder, log)
            lines = [line for line in said.splitlines() if line.startswith("leakgauge: ")]
            finished = _finished(folder)
            if code == 0 and result(folder) != expected:
                told["silent"] += 1
                shown.append(f"{where}: silent: {_difference(result(folder), expected)}")
            elif code not in (0, 2, -9) or (code == 2 and (not lines or "Traceback" in said)):
                told["silent"] += 1
                shown.append(f"{where}: exit code {code}: {said[-300:]!r}")
            elif code in (0, 2) and list(folder.rglob("*.part")) and kind not in ("unlink", "close"):
                told["left"] += 1
                shown.append(f"{where}: parts left: {[p.name for p in folder.rglob('*.part')]}")
            told["told"] += code == 2
            told["survived"] += code == 0
            code, said = run(path.words, folder)
            again = result(folder)
            if code or again != expected:
                told["wrong"] += 1
                shown.append(f"{where}: run again: {code}, {said[-300:]!r} {_difference(again, expected)}")
            if finished - _finished(folder):
                told["lost"] += 1
                shown.append(f"{where}: made again: {sorted(finished - _finished(folder))}")
            shutil.rmtree(folder)
    return dict(told), shown


def _counts(layer: Any) -> list[int]:
    counts = [layer.faulty_count(kind) for kind in range(len(KINDS))]
    layer.faulty_disarm()
    return counts


def _finished(folder: Path) -> set[tuple[str, int]]:
    """Trials, runs and scores that are kept, by name and time."""
    parts = ("cells", "runs", "scores")
    return {
        (p.name, p.stat().st_mtime_ns)
        for part in parts
        for whole in folder.rglob(part)
        for p in whole.iterdir()
        if p.suffix in (".safetensors", ".json") and not p.name.startswith(".")
    }


def _cut(folder: Path, log: Path) -> None:
    """What a power cut may leave: files end where they were last made safe, names that were not are gone."""
    unsafe: set[str] = set()
    unnamed: set[str] = set()
    for line in log.read_text().splitlines():
        what, first, second = line.split("\t")
        path, other = os.path.join(folder, first), os.path.join(folder, second)
        if what == "C":
            unnamed.add(path)
        elif what == "W":
            unsafe.add(path)
        elif what == "S":
            unsafe.discard(path)
            unnamed -= {p for p in unnamed if os.path.dirname(p) == path}
        elif what == "R":
            for names in (unsafe, unnamed):
                if path in names:
                    names.discard(path)
                    names.add(other)
    for path in unsafe:
        if os.path.exists(path):
            os.truncate(path, 0)
    for path in unnamed:
        Path(path).unlink(missing_ok=True)


def _difference(got: dict[str, Any], expected: dict[str, Any]) -> str:
    names = [n for n in {*got, *expected} if got.get(n) != expected.get(n)]
    return f"differs in {sorted(names)[:4]}" if names else ""


if __name__ == "__main__":
    sys.exit(main())
