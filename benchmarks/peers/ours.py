"""Our attacks on the same victims, all of them side by side. Run by hand, on a GPU.

python benchmarks/peers/ours.py --attack portfolio:restarts=2 --network lenet --batch 1 --out F.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from scores import scores
from victims import NETWORKS, victims

from leakgauge import catalog
from leakgauge.client.observe import facts_about, observe
from leakgauge.engine.precision import set_precision
from leakgauge.execution.batching import reconstruct
from leakgauge.metrics.worst_case import worst_case
from leakgauge.types import Batch, Client, SharedUpdate, no_progress, threat_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attack", required=True, help="as on the command line, but for its steps")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--network", choices=NETWORKS, required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--victims", type=int, default=20)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--half", default="test")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    set_precision(told.precision)
    attack = catalog.build("attacks", told.attack).with_fields(steps=told.steps)
    seen = victims(told.network, told.batch, told.victims, told.pictures, told.half, told.device)
    truth = Batch(seen.inputs, seen.labels)
    facts = facts_about(seen.model, truth, seen.data, Client(), None)
    update = SharedUpdate("gradient", seen.gradients)
    observation = observe(seen.model, update, threat_model("honest-but-curious+labels"), facts)
    began = time.perf_counter()
    found = reconstruct(attack, observation, range(told.victims), no_progress)
    seconds = time.perf_counter() - began
    worst = worst_case(truth, found, seen.data)
    row = {
        "who": told.attack,
        "network": told.network,
        "batch": told.batch,
        "steps": told.steps,
        "seconds": seconds,
        "torch": torch.__version__,
        "precision": told.precision,
        "device": told.device,
    }
    row |= scores(seen, (found if worst is None else worst.result).inputs)
    if worst is not None:  # what each answer is worth alone
        named = zip(found.answer_names, worst.matched.unbind(1), strict=True)
        row["answers"] = {name: scores(seen, answer)["psnr_mean"] for name, answer in named}
        row["own_pick"] = scores(seen, found.inputs)["psnr_mean"]
    told.out.write_text(json.dumps(row))


if __name__ == "__main__":
    main()
