"""What the strongest attacks recover from the clients that people ship: six optimisers, three networks, 1 to 20 steps.

    python benchmarks/clients/table.py --out DIR [--device cuda] [--victims 20] [--smoke]

Embedded pictures only (photos32), one sample per client, labels hidden, no network. Every cell is a file of DIR/cells,
so the same command goes on where it stopped; DIR/table.md and DIR/table.json are made of all that are there. `--render`
runs nothing. On a GPU several processes share the card. `--smoke` takes two victims and few steps, for a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.engine.precision import set_precision
from leakgauge.errors import NotApplicable
from leakgauge.execution.batching import reconstruct
from leakgauge.metrics.criterion import criterion_of
from leakgauge.metrics.intervals import bootstrap_mean, clopper_pearson
from leakgauge.metrics.scoring import score
from leakgauge.metrics.worst_case import worst_case
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, no_progress, threat_model

CLIENTS = {
    "SGD": "lr=0.01",
    "SGD, momentum 0.9": "lr=0.01,momentum=0.9",
    "Adam": "lr=0.001,optimizer=adam",
    "AdamW": "lr=0.001,optimizer=adamw,weight_decay=0.01",
    "RMSprop": "lr=0.001,optimizer=rmsprop",
    "Adagrad": "lr=0.01,optimizer=adagrad",
}
MODELS = {"lenet-dlg": "lenet-dlg", "mlp": "mlp", "resnet20": "resnet20"}
STEPS = (1, 5, 20)
ATTACKS = {  # at fixed budgets; the first three descend, the last is a closed form
    "dlg": "dlg:restarts=4,schedule=halving,steps={dlg}",
    "inverting-gradients": "inverting-gradients:restarts=2,steps={descent}",
    "portfolio": "portfolio:steps={descent}",
    "rank-one": "rank-one",
}
BUDGETS = {"full": {"dlg": 30, "descent": 600}, "smoke": {"dlg": 2, "descent": 20}}
SEED = 0


@dataclass(frozen=True)
class Cell:
    model: str
    client: str
    steps: int

    @property
    def file(self) -> str:
        words = f"{self.model} {self.client} {self.steps}".lower()
        return "-".join("".join(c if c.isalnum() else " " for c in words).split()) + ".json"

    @property
    def local(self) -> Client:
        return Client.from_text(f"kind=fedavg,epochs={self.steps},{CLIENTS[self.client]}")


CELLS = tuple(Cell(model, client, steps) for model in MODELS for client in CLIENTS for steps in STEPS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--victims", type=int, default=None, help="per cell; 20 unless given, 2 with --smoke")
    parser.add_argument("--smoke", action="store_true", help="few victims, few steps")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--clients", nargs="*", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--steps", nargs="*", type=int, choices=STEPS, default=list(STEPS))
    parser.add_argument("--attacks", nargs="*", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--processes", type=int, default=None, help="that share the device; 8 on a GPU, else 1")
    parser.add_argument("--seconds", type=float, default=660, help="no cell is begun later than this")
    parser.add_argument("--part", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--render", action="store_true", help="run nothing")
    asked = parser.parse_args()
    (asked.out / "cells").mkdir(parents=True, exist_ok=True)
    processes = asked.processes or (8 if asked.device.startswith("cuda") else 1)
    if asked.part is None and not asked.render and processes > 1:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, *sys.argv[1:], "--processes", str(processes), "--part"]
        parts = [subprocess.Popen([*command, str(part)], env=environment) for part in range(processes)]
        codes = [part.wait() for part in parts]
        render(asked.out)
        return max(codes)
    if not asked.render:
        work(asked, asked.part or 0, processes)
    if asked.part is None:
        render(asked.out)
    return 0


def work(asked: argparse.Namespace, part: int, parts: int) -> None:
    """Every `parts`-th cell that is not there yet, the shortest first."""
    set_precision("float32")
    until = time.monotonic() + asked.seconds
    chosen = [c for c in CELLS if c.model in asked.models and c.client in asked.clients and c.steps in asked.steps]
    chosen.sort(key=lambda cell: (cell.steps, list(MODELS).index(cell.model)))
    for cell in chosen[part::parts]:
        file = asked.out / "cells" / cell.file
        if file.is_file() or time.monotonic() > until:
            continue
        row = measured(cell, asked.victims or (2 if asked.smoke else 20), asked)
        draft = file.with_suffix(".part")
        draft.write_text(json.dumps(row, indent=1), encoding="utf-8")
        draft.replace(file)
        sys.stdout.write(f"{cell.file[:-5]}: {row['psnr']['value']:.1f} dB, {row['seconds']:.1f} s\n")
        sys.stdout.flush()


def measured(cell: Cell, victims: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One cell: what each attack recovers of each victim, and the best of them per victim."""
    began, samples, local = time.perf_counter(), load("photos32"), cell.local
    batch = _moved(draw_victims(samples, victims, 1, SEED), asked.device)
    net, seeds = load_model(MODELS[cell.model], samples.spec, SEED).to(asked.device), tuple(range(victims))
    update = client_step(local)(net, batch, seeds)
    seen = observe(net, update, threat_model("honest-but-curious"), facts_about(net, batch, samples.spec, local, None))
    rule, attacks = criterion_of(samples.spec), dict[str, Any]()
    for name in asked.attacks:
        spec = ATTACKS[name].format(**BUDGETS["smoke" if asked.smoke else "full"])
        since = time.perf_counter()
        try:
            found = reconstruct(catalog.build("attacks", spec), seen, seeds, no_progress)
        except NotApplicable as error:
            attacks[name] = {"spec": spec, "not_applicable": str(error)}
            continue
        worst = worst_case(batch, found, samples.spec)
        scores = score(batch, found if worst is None else worst.result, samples.spec).records
        shown = {metric: _listed(values) for metric, values in scores.items() if metric in ("psnr", rule.metric)}
        attacks[name] = {"spec": spec, "seconds": time.perf_counter() - since, **shown}
    ran = [a for a in attacks.values() if "psnr" in a]
    best = {m: [max(row) for row in zip(*(a[m] for a in ran), strict=True)] for m in ("psnr", rule.metric)}
    met = sum(any(rule.met({rule.metric: a[rule.metric][t]}) for a in ran) for t in range(victims))
    return {
        **asdict(cell),
        "local": local.as_dict(),
        "victims": victims,
        "seed": SEED,
        "criterion": str(rule),
        "psnr": asdict(bootstrap_mean(torch.tensor(best["psnr"]))),
        "recovered": {"count": met, "interval": clopper_pearson(met, victims)},
        "attacks": attacks,
        "seconds": time.perf_counter() - began,
        "device": torch.cuda.get_device_name() if asked.device.startswith("cuda") else "cpu",
        "torch": torch.__version__,
    }


def _moved(batch: Batch, device: str) -> Batch:
    return Batch(batch.inputs.to(device), batch.labels.to(device))


def _listed(values: Tensor) -> list[float]:
    """One number per victim; -1 where a record is not claimed."""
    return [-1.0 if value != value else round(value, 4) for value in values[:, 0].double().tolist()]


def render(folder: Path) -> None:
    """table.json and table.md of all cells that are there."""
    known = {cell: folder / "cells" / cell.file for cell in CELLS}
    rows = {cell: json.loads(file.read_text(encoding="utf-8")) for cell, file in known.items() if file.is_file()}
    (folder / "table.json").write_text(json.dumps(list(rows.values()), indent=1), encoding="utf-8")
    (folder / "table.md").write_text(page(rows), encoding="utf-8")


def page(rows: dict[Cell, dict[str, Any]]) -> str:
    """One table per network: PSNR of the best attack, its interval, and how many victims were recovered."""
    if not rows:
        return "No cell has been measured.\n"
    first = next(iter(rows.values()))
    lines = [
        f"Mean PSNR of the best attack per victim in dB, its 95 % interval, and of {first['victims']} victims how many "
        f"came back ({first['criterion']}); below it the attack that is best on average. photos32, one sample per "
        f"client, seed {first['seed']}, {first['device']}, torch {first['torch']}."
    ]
    for model in MODELS:
        if any(cell.model == model for cell in rows):
            lines += ["", f"**{model}**", "", _line(["client", *(f"{s} step{'s' * (s > 1)}" for s in STEPS)])]
            lines += [_line(["---"] * (1 + len(STEPS)))]
            lines += [_line([name, *(_entry(rows.get(Cell(model, name, s))) for s in STEPS)]) for name in CLIENTS]
    return "\n".join(lines) + "\n"


def _entry(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    psnr, ran = row["psnr"], {name: a for name, a in row["attacks"].items() if "psnr" in a}
    strongest = max(ran, key=lambda name: sum(ran[name]["psnr"]))
    between = "" if psnr["low"] is None else f" ({psnr['low']:.1f} to {psnr['high']:.1f})"
    return f"{psnr['value']:.1f}{between}, {row['recovered']['count']} back, {strongest}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
