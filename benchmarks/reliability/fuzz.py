"""Damages the files of every reader and counts what comes out that should not: `python fuzz.py --inputs 20000`.

Each reader runs in a process of its own. With `--engine atheris` (pip install atheris) coverage guides the damage, else
it is drawn from the seed. An input is bad if anything but a refusal in one line comes out of the reader, if it starts a
program, opens a connection, executes text, writes outside its folder, or takes more memory than a small file can
need. Exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib.util
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

CANARY = "ran"  # the folder that a trap makes if it is run
ENGINES = ("random", "atheris")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=2000, help="damaged files for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=ENGINES, default="random")
    parser.add_argument("--reader", action="append", help="only this one; may be given again")
    parser.add_argument("--seconds", type=int, default=0, help="most seconds for each reader; 0 for no limit")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        run_one(asked.alone, asked.inputs, asked.seed, asked.engine, asked.seconds)
    if asked.engine == "atheris" and importlib.util.find_spec("atheris") is None:
        parser.error("--engine atheris must be installed; run: pip install 'leakgauge[fuzz]', or leave it out")
    from readers import READERS

    known = [reader.name for reader in READERS]
    wrong = [name for name in asked.reader or () if name not in known]
    if wrong:
        parser.error(f"--reader must be one of {', '.join(known)}, got {wrong[0]}")
    began, rows = time.monotonic(), [in_a_process(name, asked) for name in asked.reader or known]
    said(
        f"{sum(r['inputs'] for r in rows):,} inputs, {sum(r['bad'] for r in rows):,} of them handled badly "
        f"({sum(len(r['kinds']) for r in rows)} kinds), {time.monotonic() - began:.0f} s"
    )
    return int(any(row["bad"] for row in rows))


def in_a_process(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--alone", name, "--inputs", str(asked.inputs), "--seed", str(asked.seed)]
    command += ["--engine", asked.engine, "--seconds", str(asked.seconds)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    row: dict[str, Any] = (
        json.loads(lines[-1])
        if lines
        else {
            "inputs": 1,
            "bad": 1,
            "seconds": 0.0,
            "memory": 0,
            "refused": 0,
            "kinds": {f"the process ended with {done.returncode}: {done.stderr.strip()[-300:]}": 1},
        }
    )
    said(
        f"{name:24} {row['inputs']:7,} inputs {row['refused']:7,} refused {row['bad']:5,} bad "
        f"{row['seconds']:6.1f} s  +{row['memory']} MB"
    )
    for kind, times in row["kinds"].items():
        said(f"    {times:5} x {kind}")
    return row


def run_one(name: str, inputs: int, seed: int, engine: str, seconds: int) -> None:
    """Damage the files of one reader, print the counts as JSON, end the process."""
    READERS, offence, mutate = _loaded(engine)
    from leakgauge.errors import LeakgaugeError

    warnings.simplefilter("ignore")
    reader = next(r for r in READERS if r.name == name)
    kinds: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="leakgauge-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    reader.make(folder)
    valid = (folder / reader.file).read_bytes()
    fixed = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with contextlib.suppress(LeakgaugeError):  # some have no valid file that is small
        reader.read(folder)  # also loads what is imported late, before anybody watches
    before, began = _memory(), time.monotonic()

    def one(content: bytes) -> None:
        _restore(folder, fixed)
        (folder / reader.file).write_bytes(content)
        counted["inputs"] += 1
        found, refused = offence(reader.read, folder)
        counted["refused"] += refused
        if (folder / CANARY).exists():
            shutil.rmtree(folder / CANARY)
            found = "a trap was run"
        if found:
            kinds[found] += 1
        if counted["inputs"] >= inputs or (seconds and time.monotonic() - began > seconds):
            row = {
                "inputs": counted["inputs"],
                "refused": counted["refused"],
                "bad": sum(kinds.values()),
                "kinds": kinds,
                "seconds": time.monotonic() - began,
                "memory": _memory() - before,
            }
            said(json.dumps(row))
            atexit._run_exitfuncs()
            os._exit(0)

    traps = reader.traps(folder)
    for trap in traps:
        one(trap)
    pool = [valid, *(trap for trap in traps if len(trap) < 1 << 16)]
    if engine == "atheris":
        _guided(one, pool, seed)
    rng = random.Random(f"{name} {seed}")
    while True:
        one(mutate(rng.choice(pool) if rng.random() < 0.3 else valid, rng))


def _loaded(engine: str) -> Any:
    """The readers; watched line by line where coverage is to guide the damage."""
    if engine == "atheris":
        import atheris

        with atheris.instrument_imports(include=["leakgauge"]):
            import readers
    else:
        import readers
    from guarding import offence
    from mutations import mutate

    return readers.READERS, offence, mutate


def _restore(folder: Path, fixed: dict[Path, bytes]) -> None:
    """As it was before the last input, which may have made files or removed some."""
    for path in [p for p in folder.rglob("*") if p.is_file() and p.relative_to(folder) not in fixed]:
        path.unlink()
    for path, content in fixed.items():
        if not (folder / path).is_file() or (folder / path).stat().st_size != len(content):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)


def _memory() -> int:
    """The most that was resident so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _guided(one: Callable[[bytes], None], pool: list[bytes], seed: int) -> None:
    """Coverage of leakgauge decides which damaged files are damaged further; the damage is ours."""
    import atheris
    from mutations import mutate

    corpus = Path(tempfile.mkdtemp(prefix="leakgauge-corpus-"))
    atexit.register(shutil.rmtree, corpus, ignore_errors=True)
    for number, content in enumerate(pool):
        (corpus / str(number)).write_bytes(content)
    options = [sys.argv[0], str(corpus), f"-seed={seed + 1}", "-max_len=65536", "-rss_limit_mb=0", "-timeout=60"]

    def damaged(content: bytes, most: int, number: int) -> bytes:
        return mutate(content, random.Random(number))[:most]

    atheris.Setup(options, one, custom_mutator=damaged)
    atheris.Fuzz()  # does not come back: `one` ends the process once there were enough


def said(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
