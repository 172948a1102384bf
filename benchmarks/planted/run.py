"""Five planted cases, each by `leakgauge audit --suite SUITE`: is the verdict the right one?

    python benchmarks/planted/run.py --suite standard

Writes README.md beside it. Needs CIFAR-10 (`LEAKGAUGE_DATA`). The runs stay in --runs; the same command goes on from
there, and one with --render writes the page from what is finished. Exit code 1 if a verdict is wrong.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakgauge.defenses._accounting import sigma_for
from leakgauge.suites import SUITES

HERE = Path(__file__).parent
TRIALS = 6
EPSILON_ONE = f"dp-sgd:norm=1,sigma={sigma_for(1.0, 1e-5, 1.0, 1):.4g},q=1,rounds=1,delta=1e-5"


@dataclass(frozen=True)
class Case:
    name: str
    flags: str
    right: str  # the standing that the audit must come to


CASES = (
    Case("leaky", "--model lenet-dlg --defenses none", "leaks"),
    Case("leaky through a broken defence", "--model lenet-dlg --defenses soteria:share=0.8", "leaks"),
    Case("protected with a guarantee", f"--model lenet-dlg --defenses {EPSILON_ONE}", "protected"),
    Case("unknown", "--model resnet18 --batch-size 32 --defenses gaussian:std=0.01", "unknown"),
    Case(
        "tampered model",
        "--model lenet-dlg --batch-size 8 --defenses none --threat-model malicious-architecture",
        "leaks",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", choices=sorted(SUITES), default="standard")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("leakgauge-runs/planted"))
    parser.add_argument("--render", action="store_true", help="run nothing")
    asked = parser.parse_args()
    reports: dict[str, dict[str, Any]] = {}
    for case in CASES:
        out = asked.runs / asked.suite / case.name.replace(" ", "-")
        if not asked.render:
            subprocess.run(
                [sys.executable, "-m", "leakgauge", *_audit(case, asked.suite), "--device", asked.device, "--out", out],
                check=False,
            )
        if (out / "report.json").is_file():
            reports[case.name] = json.loads((out / "report.json").read_text())
    page = HERE / ("README.md" if asked.suite == "standard" else f"{asked.suite}.md")
    page.write_text(_page(asked.suite, reports), encoding="utf-8")
    return int(any(_standing(reports[c.name]) != c.right for c in CASES if c.name in reports))


def _audit(case: Case, suite: str) -> list[str]:
    return ["audit", "--data", "cifar10", *shlex.split(case.flags), "--suite", suite, "--trials", str(TRIALS)]


def _standing(report: dict[str, Any]) -> str:
    return str(report["verdict"]["configurations"][-1]["standing"])


def _page(suite: str, reports: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"<!-- Written by benchmarks/planted/run.py --suite {suite}; edit that. -->",
        "",
        f"# Five planted cases, `--suite {suite}`",
        "",
        f"What each must come to was fixed before it was run. CIFAR-10, {TRIALS} victims, seed 0.",
        "",
        "| case | must be | verdict | what it says | minutes of attacks | device, commit |",
        "|---|---|---|---|---|---|",
    ]
    for case in CASES:
        report = reports.get(case.name)
        if report is None:
            lines.append(f"| {case.name} | {case.right} | not run | | | |")
            continue
        entry, environment = report["verdict"]["configurations"][-1], report["environment"]
        minutes = sum(finding["seconds"] for finding in report["findings"]) / 60
        lines.append(
            f"| {case.name} | {case.right} | **{entry['standing']}** | {entry['sides']} "
            f"| {minutes:.1f} | {environment['device']}, {environment['commit']} |"
        )
    lines += ["", "```sh", *(f"leakgauge {shlex.join(_audit(case, suite))}" for case in CASES), "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
