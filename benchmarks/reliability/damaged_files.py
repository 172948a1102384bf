"""Files that runs keep are damaged, or lie where another one was; then the command that reads them is run.

    python benchmarks/reliability/damaged_files.py                 # 1,000 files or more
    python benchmarks/reliability/damaged_files.py --each 5

For each command there are two folders that it has worked in, with two seeds. A file of the first folder is damaged (as
`fuzz.py` does it), or becomes a copy of another one of its kind, from either folder. The command must then give the
whole result, or say in one line with exit code 2 what it cannot use. Prints one JSON document; exits with 1 for

- wrong: exit code 0 and another result without a word about that file
- badly told: a traceback, another exit code, or no line
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from mutations import mutate
from write_paths import AUDIT, WRITE_PATHS, record, result, run

_KINDS = (".json", ".safetensors", ".sqlite", ".training")


@dataclass(frozen=True)
class Reading:
    """What made the folder, with a seed, and the command that reads it."""

    made: str
    words: str
    shown: tuple[str, ...]  # how the names of the files begin that are the result


_OF_RUN = f"{AUDIT} --keep-private --out run"
READINGS = {
    "audit": Reading(_OF_RUN, _OF_RUN, ("run/report.json", "run/truth")),
    "report": Reading(_OF_RUN, "report run --out pages", ("pages",)),
    "lab reidentify": Reading(WRITE_PATHS["lab reidentify"].before[0], WRITE_PATHS["lab reidentify"].words, ("who",)),
    "train": Reading(WRITE_PATHS["train"].words, WRITE_PATHS["train"].words, ("t/train.json",)),
    "lab train-locked": Reading(
        WRITE_PATHS["lab train-locked"].words, WRITE_PATHS["lab train-locked"].words, ("l/train-locked.json",)
    ),
    "lab search-policy": Reading(
        WRITE_PATHS["lab search-policy"].words, WRITE_PATHS["lab search-policy"].words, ("s/policies.json",)
    ),
    "lab reproduce": Reading(
        WRITE_PATHS["lab reproduce"].words, WRITE_PATHS["lab reproduce"].words, ("r/measured.json",)
    ),
    "recorded": Reading("", WRITE_PATHS["recorded"].words, ("o",)),
}


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--each", type=int, default=20, help="damaged versions of each file")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    torch.set_num_threads(1)
    total, rows, bad = Counter[str](), {}, []
    with tempfile.TemporaryDirectory() as scratch:
        for name, reading in READINGS.items():
            if not given.only or name in given.only:
                counted, shown = _tried(reading, Path(scratch).resolve() / name, given.each, random.Random(given.seed))
                rows[name], bad = dict(counted), bad + [f"{name}: {line}" for line in shown]
                total += counted
                sys.stderr.write(f"{name}: {rows[name]}\n" + "".join(f"  {line}\n" for line in shown))
    sys.stdout.write(json.dumps({"commands": rows, "total": total, "bad": bad}, indent=1) + "\n")
    return int(bool(total["wrong"] or total["badly told"]))


def _tried(reading: Reading, scratch: Path, each: int, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """One command: how often what came of a file, and a line for each that went wrong."""
    ours, other, place = scratch / "ours", scratch / "other", scratch / "place"
    for folder, seed in ((ours, 0), (other, 1)):
        folder.mkdir(parents=True)
        _make(reading, folder, seed)
    shutil.copytree(ours, place)
    code, said = run(reading.words, place)
    assert code == 0, said
    expected, told, shown = result(place, reading.shown), Counter[str](), []
    for file, what, content in _bad_files(ours, other, each, rng):
        shutil.rmtree(place)
        shutil.copytree(ours, place)
        (place / file).write_bytes(content)
        code, said = run(reading.words, place)
        told[what] += 1
        got = result(place, reading.shown) if code == 0 else {}
        if code == 0 and got == expected:
            told["whole result"] += 1
        elif code == 0 and Path(file).name in said:
            told["left out by name"] += 1
        elif code == 0:
            told["wrong"] += 1
            names = sorted(n for n in {*got, *expected} if got.get(n) != expected.get(n))
            shown.append(f"{file} {what}: wrong in {names[:4]}: {said[-200:]!r}")
        elif code == 2 and "Traceback" not in said and "leakgauge: " in said:
            told["refused"] += 1
        else:
            told["badly told"] += 1
            shown.append(f"{file} {what}: exit code {code}: {said[-400:]!r}")
    return told, shown


def _make(reading: Reading, folder: Path, seed: int) -> None:
    if not reading.made:
        record(folder, 1 + seed)
        return
    flag = "" if reading.made.startswith("lab reproduce") else f" --seed {seed}"
    words = reading.made.replace("--seeds 1", f"--seeds {1 + seed}") + flag
    code, said = run(words, folder)
    assert code == 0, said


def _bad_files(ours: Path, other: Path, each: int, rng: random.Random) -> Iterator[tuple[str, str, bytes]]:
    """Each file that is kept: damaged so often, and each other one of its kind in its place."""
    kept = {folder: [p for p in sorted(folder.rglob("*")) if p.suffix in _KINDS] for folder in (ours, other)}
    for path in kept[ours]:
        content, name = path.read_bytes(), path.relative_to(ours).as_posix()
        for _ in range(each):
            if (damaged := mutate(content, rng)) != content:
                yield name, "damaged", damaged
        for stranger in (*kept[ours], *kept[other]):
            if stranger.suffix == path.suffix and (swapped := stranger.read_bytes()) != content:
                yield name, "swapped", swapped


if __name__ == "__main__":
    sys.exit(main())
