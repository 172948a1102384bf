"""Run stock apps as they are published, record what their server sees, audit it, and write the table.

    python benchmarks/apps/run.py EXAMPLES --out OUT [--only NAME ...]

EXAMPLES holds `flower` and `nvflare`, the examples folders of both projects (README.md). Each app runs in a process of
its own with `stand_ins` before it; no file of an app is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from apps import APPS, App  # noqa: E402

RECORDING = 3  # lines: two imports and a call, see docs/how-to/record-a-flower-federation.md
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}
_MOST_SECONDS = 900


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--parts", nargs="*", default=["round", "one"], help="of each app's audits")
    parser.add_argument("--record", default="", help=argparse.SUPPRESS)  # inside an app's own process
    given = parser.parse_args()
    if given.record:
        record(next(app for app in APPS if app.name == given.record), given.examples.resolve(), Path.cwd())
        return
    results: dict[str, Any] = {}
    kept = given.out / "results.json"
    if kept.is_file():
        results = json.loads(kept.read_text())
    for app in APPS:
        if given.only and app.name not in given.only:
            continue
        out = (given.out / app.name.replace(" ", "-")).resolve()
        results[app.name] = results.get(app.name, {}) | played(app, given.examples.resolve(), out, given.parts)
        kept.write_text(json.dumps(results, indent=1))
    (given.out / "table.md").write_text(table(results))


def played(app: App, examples: Path, out: Path, parts: list[str]) -> dict[str, Any]:
    """Records one round of the app, audits it, and audits one simulated sample with the app's own training."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "truth.py").write_text(app.lines)
    source = examples / app.framework / app.folder
    paths = [str(HERE / "stand_ins"), str(HERE.parents[1] / "src"), str(source)]
    if "cifar10" in app.folder and app.framework == "nvflare":
        paths.append(str(source.parents[1] / "src"))
    environment = (
        os.environ
        | _QUIET
        | {
            "PYTHONPATH": os.pathsep.join(paths),
            "APPS_SAMPLES": str(app.total),
            "FLWR_HOME": str(out / "flower"),
            "HF_HOME": str(out / "hub"),
            "NVFLARE_SIMULATOR_WORKSPACE_ROOT": str(out / "simulation"),
        }
    )
    began = time.monotonic()
    run(out, "app", environment, str(HERE / "run.py"), str(examples), "--out", ".", "--record", app.name)
    found: dict[str, Any] = {"recorded": len(list((out / "recorded").glob("update-*.json")))}
    found["app_seconds"] = round(time.monotonic() - began)
    if not found["recorded"]:
        return found | {"error": (out / "app.log").read_text()[-800:]}
    beside = next((path for path in map(Path, paths[2:]) if (path / "model.py").is_file()), source)
    words = ["audit", "--model", app.model.replace("model.py:", f"{beside}/model.py:")]
    recorded = [*words, *app.flags, "--recorded", "recorded", "--local", f"kind=fedavg,{app.local}"]
    recorded += ["--data", app.blind, "--blind"] if app.blind else ["--data", "truth.py:samples"]
    recorded += ["--batch-size", str(app.samples)] if app.samples else []
    recorded += ["--attacks", app.attacks] if app.attacks else []
    if "round" in parts:
        found["round"] = audited(out, "round", environment, recorded)
    if app.simulated and "one" in parts:
        data, client = app.simulated.split(" ")
        one = [*words, "--data", data, "--client", client, "--trials", "3", "--defenses", "none"]
        found["one"] = audited(out, "one", environment, one)
    return found


def audited(out: Path, name: str, environment: dict[str, str], words: list[str]) -> dict[str, Any]:
    began = time.monotonic()
    code = run(out, name, environment, "-m", "leakgauge", *words, "--out", name)
    seconds = round(time.monotonic() - began)
    report = out / name / "report.json"
    if not report.is_file():
        lines = (out / f"{name}.log").read_text().splitlines()
        return {"code": code, "error": " ".join(lines[-2:])[-600:], "seconds": seconds}
    plain = json.loads(report.read_text())
    whole = plain["verdict"] or {}
    verdict = next(iter(whole.get("configurations") or []), {})
    said = [line for line in (out / f"{name}.log").read_text().splitlines() if line.startswith("Verdict:")]
    return {
        "code": code,
        "verdict": " ".join(said),
        "sentence": whole.get("sentence", ""),
        "leaks": whole.get("leaks"),
        "attack": verdict.get("attack"),
        "labels": verdict.get("labels"),
        "rate": verdict.get("rate"),
        "flags": sorted({str(flag.get("id", flag)) for flag in plain["flags"]}),
        "ran": {s["attack"]: s.get("error") for s in plain["summary"]},
        "seconds": seconds,
    }


def run(out: Path, name: str, environment: dict[str, str], *words: str) -> int:
    """A process of its own, its output in NAME.log; stopped with all that it started when it takes too long."""
    with (out / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=out, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            return process.wait(_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return -9


# --- inside an app's own process ------------------------------------------------------------------------------------


def record(app: App, examples: Path, out: Path) -> None:
    import torch

    torch.manual_seed(0)
    source = examples / app.framework / app.folder
    if app.framework == "flower":
        from in_process import run_app

        if app.folder == "quickstart-monai":
            digits_in_folders(out / "MedNIST")
        run_app(source, out / "recorded", app.nodes, **{"num-server-rounds": 1}, **app.config)
        return
    from nvflare.recipe.spec import Recipe

    from leakgauge.integrations.nvflare import record_updates

    execute = Recipe.execute

    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        record_updates(self, out / "recorded", samples=32)
        return execute(self, *args, **kwargs)

    Recipe.execute = recording
    words = [[f"--{key}"] if value is True else [f"--{key}", str(value)] for key, value in app.config.items()]
    sys.argv = ["job.py", *(word for pair in words for word in pair)]
    os.chdir(source)
    runpy.run_path(str(source / "job.py"), run_name="__main__")


def digits_in_folders(folder: Path) -> None:
    """CLASS/N.jpeg, as the archive that the app would download holds them."""
    from app_stand_ins import pictures, samples
    from PIL import Image

    inputs, labels = pictures("mnist", 4 * samples())
    counts = dict.fromkeys(range(6), 0)
    for x, label in zip(inputs, labels, strict=True):
        if counts.get(label, samples()) < samples() // 6:
            (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(x).resize((64, 64)).save(folder / f"class{label}" / f"{counts[label]}.jpeg")
            counts[label] += 1


# --- the table ------------------------------------------------------------------------------------------------------


def table(results: dict[str, Any]) -> str:
    rows = ["| app | optimiser | what was replaced | lines | a recorded round | one sample, its own training |"]
    rows.append("|---|---|---|---|---|---|")
    for app in APPS:
        if app.name in results:
            found = results[app.name]
            lines = f"{RECORDING} + {len(app.lines.splitlines())}"
            said = [_said(found.get(part)) for part in ("round", "one")]
            rows.append(f"| {app.name} | {app.optimizer} | {app.replaced} | {lines} | {' | '.join(said)} |")
    return "\n".join(rows) + "\n"


def _said(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    if "error" in found:
        return f"refused: {found['error'][-160:]}"
    attack = f" (strongest: {found['attack']})" if found["attack"] else ""
    return f"{found['verdict'].removeprefix('Verdict: ')}{attack}"


if __name__ == "__main__":
    main()
