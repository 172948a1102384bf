"""What `kill -9` costs an audit: one with it every few seconds, one without, and what differs between their reports.

    python benchmarks/reliability/kill_workers.py                  # a random worker process, every 3 seconds
    python benchmarks/reliability/kill_workers.py --starter 5      # every fifth time the command, which is begun again

Prints one JSON document: faults injected, findings lost, findings twice, whether the two reports are the same byte for
byte apart from times, and how long both took. Exits with 1 if anything was lost, doubled or different.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ATTACKS = "linear dlg:steps=10,restarts=1 idlg:steps=10,restarts=1"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--trials", type=int, default=200)
    asked.add_argument("--workers", type=int, default=4)
    asked.add_argument("--every", type=float, default=3.0, help="seconds between two kills")
    asked.add_argument("--starter", type=int, default=0, help="every so many kills hit the command itself; 0: none")
    asked.add_argument("--seed", type=int, default=0, help="of what is killed")
    asked.add_argument("--attacks", default=ATTACKS)
    asked.add_argument("--defenses", default="none")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "leakgauge",
            "audit",
            "--model",
            "mlp:hidden=64",
            "--data",
            "digits",
            "--device",
            "cpu",
            "--trials",
            str(given.trials),
            "--attacks",
            given.attacks,
            "--defenses",
            given.defenses,
            "--plain",
            "--workers",
            str(given.workers),
        ]
        calm, calm_seconds, _ = run([*command, "--out", f"{folder}/calm"])
        shot, seconds, faults = run([*command, "--out", f"{folder}/shot"], given.every, given.starter, given.seed)
        files = sum(1 for _ in Path(folder, "shot", "cells").glob("*.safetensors"))
    expected, found = (Counter(map(_name, report["findings"])) for report in (calm, shot))
    told = {
        "command": " ".join(["leakgauge", *command[3:]]),
        "kills_of_workers": faults["worker"],
        "kills_of_the_command": faults["command"],
        "findings_expected": sum(expected.values()),
        "findings": sum(found.values()),
        "lost": sum((expected - found).values()),
        "twice": sum(n - 1 for n in found.values()),
        "failed": sum(f["error"] is not None for f in shot["findings"]),
        "files_of_trials": files,
        "identical_apart_from_times": _timeless(calm) == _timeless(shot),
        "seconds_undisturbed": round(calm_seconds, 1),
        "seconds_with_kills": round(seconds, 1),
    }
    sys.stdout.write(json.dumps(told, indent=2) + "\n")
    return 0 if told["identical_apart_from_times"] and not told["lost"] and not told["twice"] else 1


def run(
    command: list[str], every: float | None = None, starter: int = 0, seed: int = 0
) -> tuple[Any, float, Counter[str]]:
    """The command's report, its seconds and what was killed; a command that was killed is begun again."""
    dice, faults, began = random.Random(seed), Counter[str](), time.monotonic()
    while True:
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen([*command, "--json"], stdout=out, env=os.environ | {"OMP_NUM_THREADS": "1"})
            _shoot(process, every, starter, dice, faults)
            if process.returncode == -signal.SIGKILL:
                continue
            if process.returncode:
                sys.exit(f"the command ended with {process.returncode}")
            out.seek(0)
            return json.load(out), time.monotonic() - began, faults


def _shoot(
    process: subprocess.Popen[bytes], every: float | None, starter: int, dice: random.Random, faults: Counter[str]
) -> None:
    """Until the process ends: a random worker of it is killed each time, or the process itself when its turn comes."""
    while True:
        try:
            process.wait(every)
            return
        except subprocess.TimeoutExpired:
            pass
        workers = _workers(process.pid)
        if starter and (sum(faults.values()) + 1) % starter == 0:
            process.kill()
            faults["command"] += 1
        elif workers:
            os.kill(dice.choice(workers), signal.SIGKILL)
            faults["worker"] += 1


def _workers(pid: int) -> list[int]:
    """The worker processes of a command, which are its children; the tracker that Python starts beside them is none."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(child) for child in children.read_text().split()] if children.exists() else []
    return [child for child in found if "spawn_main" in _command(child)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # gone
        return ""


def _name(finding: dict[str, Any]) -> tuple[Any, ...]:
    return finding["attack"], finding["defense"], finding["adaptive"], finding["trial"]


def _timeless(value: Any) -> str:
    def without(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: without(inner) for key, inner in part.items() if key not in ("seconds", "commit")}
        return [without(inner) for inner in part] if isinstance(part, list) else part

    return json.dumps(without(value))


if __name__ == "__main__":
    sys.exit(main())
