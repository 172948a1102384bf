"""Several processes on one GPU, each with a queue of cells: most attacks keep a card busy for a fraction of the time.

    python benchmarks/side_by_side.py --seconds 500 --folder DIR [--device cuda] [--data-root DIR] QUEUE.txt ...

One `leakgauge lab reproduce --queue` for each queue file. All of them share DIR/runs, where each takes what no other is
running, and leave out what DIR/recipes has measured. What each says is in DIR/logs, named as its queue. A queue named
cpu-*.txt runs on the processor. Nothing new is begun after so many seconds; a queue named long-*.txt has four times
as many.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # else the processes fight for the cores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queues", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data-root", type=Path)
    given = parser.parse_args()
    (given.folder / "logs").mkdir(parents=True, exist_ok=True)
    running = [_started(queue, given) for queue in given.queues]
    return max((process.wait() for process in running), default=0)


def _started(queue: Path, given: argparse.Namespace) -> subprocess.Popen[bytes]:
    seconds = given.seconds * (4 if "long" in queue.stem else 1)
    device = "cpu" if queue.stem.startswith("cpu") else given.device
    command = [
        sys.executable,
        "-m",
        "leakgauge",
        "reproduce",
        "--queue",
        str(queue),
        "--missing",
        "--device",
        device,
        "--time-budget",
        str(seconds),
        "--runs",
        str(given.folder / "runs"),
        "--out",
        str(given.folder / "recipes"),
    ]
    if given.data_root is not None:
        command += ["--data-root", str(given.data_root)]
    with (given.folder / "logs" / f"{queue.stem}.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **_THREADS})


if __name__ == "__main__":
    sys.exit(main())
