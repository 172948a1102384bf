"""What a local step costs by the client's optimiser, against plain SGD in the same run; how much memory a replay takes.

Usage: python benchmarks/clients/steps.py [--model lenet-dlg] [--victims 16] [--samples 8] [--seconds 4]
       python benchmarks/clients/steps.py --memory [--model resnet18] [--samples 4] [--steps 10] [--optimizer adamw]

A step is one pass forwards and backwards for all victims and the rule behind it, as a simulated client takes it. Ways
take turns, a few steps each, so that what else the machine does falls on all alike; the median of the turns counts.
`--memory` prints the most memory that a replay with its slope takes beyond the model: kept whole, and step by step.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch

from leakgauge.client.fedavg import fedavg, trained
from leakgauge.data import draw_victims, load
from leakgauge.engine.gradients import one_by_one, parameters_of, runs_one_by_one, trial_gradients, working_model
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, DataSpec

STEPS = 5  # in one turn
WAYS = {
    "sgd": "",
    "sgd, momentum": "momentum=0.9",
    "sgd, momentum, decay": "momentum=0.9,weight_decay=0.0005",
    "sgd, Nesterov": "momentum=0.9,nesterov=yes",
    "adam": "optimizer=adam",
    "adamw": "optimizer=adamw",
    "rmsprop": "optimizer=rmsprop",
    "adagrad": "optimizer=adagrad",
}
CIFAR = DataSpec("random", (3, 32, 32), 10, "image")


def speed(model: str, victims: int, samples: int, seconds: float) -> None:
    digits = load("digits")
    net, batch = load_model(model, digits.spec, 0), draw_victims(digits, victims, samples, 0)
    steps = {
        name: fedavg(Client.from_text(f"kind=fedavg,epochs={STEPS},{text}".rstrip(","))) for name, text in WAYS.items()
    }
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    seeds = range(victims)
    for step in steps.values():
        step(net, batch, seeds)
    end = time.perf_counter() + seconds * len(WAYS)
    while time.perf_counter() < end:
        for name, step in steps.items():
            began = time.perf_counter()
            step(net, batch, seeds)
            taken[name].append((time.perf_counter() - began) / STEPS)
    plain = statistics.median(taken["sgd"])
    print(
        f"{model}, {victims} victims of {samples} samples, {torch.get_num_threads()} threads, {len(taken['sgd'])} turns"
    )
    print("| optimiser | ms per step | plain SGD = 1 |\n|---|---|---|")
    for name, times in taken.items():
        print(f"| {name} | {1000 * statistics.median(times):.2f} | {statistics.median(times) / plain:.2f} |")


def replayed(model: str, samples: int, steps: int, optimizer: str, low_memory: bool) -> dict[str, float]:
    """Peak memory of this process in MiB before and after a replay with its slope, and its seconds."""
    net = working_model(load_model(model, CIFAR, 0), "eval")
    inputs = torch.rand(1, samples, *CIFAR.shape, requires_grad=True)
    targets = torch.randint(CIFAR.classes, (1, samples))
    local = Client.from_text(f"kind=fedavg,epochs={steps},lr=0.001,{optimizer}")
    gradients = one_by_one if runs_one_by_one(net) else trial_gradients

    def gradient_of(x, y, weights, _):  # type: ignore[no-untyped-def]
        return gradients(net, x, y, weights)

    before, began = _peak(), time.perf_counter()
    after = trained(
        parameters_of(net), [Batch(inputs, targets)], local, gradient_of, softness=0.1, low_memory=low_memory
    )
    torch.autograd.grad(sum((w * w.detach()).sum() for w in after.values()), inputs)
    return {"before": before, "peak": _peak(), "seconds": time.perf_counter() - began}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(given: argparse.Namespace) -> None:
    """Each case in a process of its own: the most memory that a process took never falls."""
    print(f"{given.model}, batch {given.samples}, {given.optimizer}")
    print("| steps | graph | MiB beyond the model | seconds |\n|---|---|---|---|")
    for steps in sorted({1, 2, given.steps}):
        for low in (True, False) if steps * given.samples <= 16 else (True,):
            arguments = [given.model, str(given.samples), str(steps), given.optimizer, str(int(low))]
            done = subprocess.run([sys.executable, __file__, "--one", *arguments], capture_output=True, text=True)
            if done.returncode:
                print(f"| {steps} | {'step by step' if low else 'whole'} | failed: {done.stderr.strip()[-80:]} | |")
                continue
            found = json.loads(done.stdout)
            more, took = found["peak"] - found["before"], found["seconds"]
            print(f"| {steps} | {'step by step' if low else 'whole'} | {more:,.0f} | {took:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--victims", type=int, default=16)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--optimizer", default="optimizer=adamw")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        model, samples, steps, optimizer, low = given.one
        print(json.dumps(replayed(model, int(samples), int(steps), optimizer, low == "1")))
    elif given.memory:
        given.model, given.samples = given.model or "resnet18", given.samples or 4
        memory(given)
    else:
        speed(given.model or "lenet-dlg", given.victims, given.samples or 8, given.seconds)


if __name__ == "__main__":
    main()
