"""Is an update ever taken for another batch's, and is its own batch ever refused? Run it by hand: it takes minutes.

    python benchmarks/wrong_batches.py [--trials 100] [--only PART ...] [--out benchmarks/wrong_batches.md]

Clients of six networks, three of them at torch's own initialisation, share one gradient or the weight difference of
three shuffled epochs, in three types of numbers and under defenses that were applied as declared, not at all, or at
another strength. Each update is then given to an audit with its own batch and with another one of the same labels.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.client.chain import client_step, prepared
from leakgauge.client.summed import seen_step
from leakgauge.data import Dataset, load
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.recording.own_update import setup_of
from leakgauge.setup.plan import parse_chain
from leakgauge.types import Batch, Client, Scenario

NETWORKS = (
    "lenet-dlg",
    "lenet-dlg:init=default",
    "convnet:width=8",
    "mlp:hidden=64,activation=relu,init=default",
    "resnet20:width=8",
    "vit",
)
SHUFFLED = Client(kind="fedavg", lr=0.01, epochs=3, batch_size=4)
DECLARED = {  # as declared -> as applied, if at another strength
    "gaussian:std=0.001": "gaussian:std=0.003",
    "gaussian:std=0.1": "gaussian:std=0.05",
    "laplace:scale=0.001": "laplace:scale=0.003",
    "prune:share=0.9": "prune:share=0.8",
    "dgc:share=0.9": "dgc:share=0.5",
    "sign": "sign:scale=none",
    "quantize:bits=4": "quantize:bits=6",
    "quantize:bits=4,rounding=stochastic": "quantize:bits=3,rounding=stochastic",
    "random-mask:share=0.5": "random-mask:share=0.8",
    "clip:norm=0.1": "clip:norm=0.2",
    "dp-sgd:norm=1,sigma=0.01": "dp-sgd:norm=1,sigma=0.03",
    "dp-sgd:norm=1,sigma=1,q=0.01,rounds=100": "dp-sgd:norm=1,sigma=0.3,q=0.01,rounds=100",
    "soteria:share=0.5": "soteria:share=0.8",
}
ACCEPTED, UNPROVEN, REFUSED = "accepted", "cannot tell", "refused"


@dataclasses.dataclass(frozen=True)
class Case:
    network: str
    inputs: Tensor  # (N, *shape)
    labels: Tensor
    others: Tensor  # other samples with these labels
    seed: int


def cases(data: Dataset, trials: int, sizes: Sequence[int]) -> Iterator[Case]:
    """Batches of these sizes in turn, on the networks in turn."""
    places = {c: (data.labels == c).nonzero()[:, 0] for c in range(data.spec.classes)}
    for number in range(trials):
        g = torch.Generator().manual_seed(number)
        size = sizes[number // len(NETWORKS) % len(sizes)]
        rows = torch.randperm(len(data), generator=g)[:size]
        inputs, labels = data.take(rows)
        taken = set(rows.tolist())
        other = []
        for c in labels.tolist():
            free = [i for i in places[c][torch.randperm(len(places[c]), generator=g)].tolist() if i not in taken]
            other.append(free[0])
            taken.add(free[0])
        yield Case(NETWORKS[number % len(NETWORKS)], inputs, labels, data.take(torch.tensor(other))[0], number)


def outcome(
    model: nn.Module, update: dict[str, Tensor], inputs: Tensor, case: Case, local: Client, declared: str
) -> str:
    scenario = Scenario(
        model=case.network, local=local, defenses=(declared,) if declared else (), seed=case.seed + 1000
    )
    try:
        setup = setup_of(model, update, inputs, case.labels, scenario, "cpu")
    except BadInput:
        return REFUSED
    return ACCEPTED if setup.victims.belonging is not None and setup.victims.belonging.sure else UNPROVEN


def shuffled_epochs(model: nn.Module, case: Case, local: Client) -> dict[str, Tensor]:
    """A plain loop as a user would write it, the order drawn anew for every epoch."""
    worker, g = copy.deepcopy(model), torch.Generator().manual_seed(case.seed)
    before = {n: p.detach().clone() for n, p in worker.named_parameters()}
    optimiser = torch.optim.SGD(worker.parameters(), lr=local.lr)
    for _ in range(local.epochs):
        order = torch.randperm(len(case.labels), generator=g)
        for part in order.split(local.batch_size):
            optimiser.zero_grad()
            nn.functional.cross_entropy(worker(case.inputs[part]), case.labels[part]).backward()
            optimiser.step()
    return {n: p.detach() - before[n] for n, p in worker.named_parameters()}


def gradient(model: nn.Module, case: Case, applied: str) -> dict[str, Tensor]:
    chain = parse_chain(applied) if applied else ()
    step = seen_step(client_step(Client()), *chain)
    shared = step(prepared(model, *chain), Batch(case.inputs[None], case.labels[None]), [case.seed])
    return {n: t[0] for n, t in shared.tensors.items()}


def ways() -> Iterator[tuple[str, tuple[int, ...], Client, str, str, torch.dtype]]:
    """Name of the row, sizes of batches, training, defense applied, defense declared, type of the shared numbers."""
    plain = Client()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        yield f"one gradient, {str(dtype)[6:]}", (1, 8), plain, "", "", dtype
    yield "three shuffled epochs", (16, 32), SHUFFLED, "", "", torch.float32
    for declared, another in DECLARED.items():
        yield f"{declared}, as declared", (1, 8), plain, declared, declared, torch.float32
        yield f"{declared}, not applied", (1, 8), plain, "", declared, torch.float32
        yield f"{declared}, really {another}", (1, 8), plain, another, declared, torch.float32


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--only", nargs="*", default=None, help="rows whose name begins so")
    parser.add_argument("--networks", nargs="*", default=None)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    if asked.networks:
        globals()["NETWORKS"] = tuple(asked.networks)
    data = load(asked.data, "test")
    lines = ["| what was shared | right batch | wrong batch | seconds a check |", "|---|---|---|---|"]
    for name, sizes, local, applied, declared, dtype in ways():
        if asked.only and not any(name.startswith(o) for o in asked.only):
            continue
        found: dict[str, Counter[str]] = {"right": Counter(), "wrong": Counter()}
        detail: dict[str, Counter[str]] = {}
        began = time.perf_counter()
        for case in cases(data, asked.trials, sizes):
            model = load_model(case.network, data.spec, case.seed)
            update = shuffled_epochs(model, case, local) if local.epochs > 1 else gradient(model, case, applied)
            update = {n: t.to(dtype).float() for n, t in update.items()}
            for which, inputs in (("right", case.inputs), ("wrong", case.others)):
                came = outcome(model, update, inputs, case, local, declared)
                found[which][came] += 1
                detail.setdefault(which, Counter())[f"{case.network}/{len(inputs)}: {came}"] += 1
        seconds = (time.perf_counter() - began) / (2 * asked.trials)
        said = {w: ", ".join(f"{c} {n}" for n, c in sorted(found[w].items())) for w in found}
        lines.append(f"| {name} | {said['right']} | {said['wrong']} | {seconds:.2f} |")
        sys.stdout.write(lines[-1] + "\n")
        odd = {
            w: {k: v for k, v in detail[w].items() if not k.endswith((ACCEPTED, REFUSED)[w == "wrong"])} for w in detail
        }
        sys.stdout.write(f"    {odd}\n")
        sys.stdout.flush()
    if asked.out:
        asked.out.write_text(page(lines), encoding="utf-8")


def page(rows: Sequence[str]) -> str:
    return "\n".join(
        [
            "<!-- Written by benchmarks/wrong_batches.py; edit that. -->",
            "",
            "# Updates beside their own batch and beside another",
            "",
            f"Six networks in turn ({', '.join(f'`{n}`' for n in NETWORKS)}),",
            "CIFAR-10, batches of 1 and 8, in three epochs 16 and 32. The wrong batch has other samples of the same",
            "labels. Where a defense was not applied as declared, the right batch is rightly refused. *Cannot tell*",
            "gives no verdict of safety. Nothing public is lent: there is nothing to compare with but what the program",
            "brings. Noise that hides one batch from another hides it from everybody. CPU, seed 0. A row's counts are",
            "its trials; rows come from several runs.",
            "",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
