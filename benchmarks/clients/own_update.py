"""Does the check of an own update take every right claim about the client, and refuse every wrong one?

    python benchmarks/clients/own_update.py [--cases 2] [--order given] [--out benchmarks/clients/own_update.md]

Clients train by plain loops of `torch.optim` on digits: six optimisers, 1, 5 and 20 local steps, three networks. Each
update is given to an audit with its batch, once with the claim that is right and once with one that is wrong in one
thing: the optimiser, its momentum or memory, decay, number of epochs, or rate. What makes the same update is no wrong
claim: momentum matters from the second step on, and Adam's first step is Adagrad's.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.data import Dataset, load
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.recording.other_claims import as_text
from leakgauge.recording.own_update import setup_of
from leakgauge.types import Client, Scenario

NETWORKS = ("lenet-dlg:init=default", "mlp:hidden=32,activation=relu,init=default", "resnet20:width=2")
STEPS = (1, 5, 20)
OPTIMIZERS = {
    "SGD, momentum": Client(kind="fedavg", lr=0.02, momentum=0.9),
    "SGD, Nesterov, decay": Client(kind="fedavg", lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4),
    "Adam": Client(kind="fedavg", lr=1e-3, optimizer="adam"),
    "AdamW": Client(kind="fedavg", lr=1e-3, optimizer="adamw", weight_decay=0.01),
    "RMSprop": Client(kind="fedavg", lr=1e-3, optimizer="rmsprop"),
    "Adagrad": Client(kind="fedavg", lr=1e-2, optimizer="adagrad"),
}
OPEN, REFUSED, ACCEPTED = "cannot tell", "refused", "accepted"


def torch_rule(local: Client, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Written out, and not by the program's own hands."""
    decay = local.weight_decay
    match local.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, local.lr, local.momentum, weight_decay=decay, nesterov=local.nesterov)
        case "adam":
            return torch.optim.Adam(parameters, local.lr, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, local.lr, weight_decay=decay)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, local.lr, weight_decay=decay)
        case _:
            return torch.optim.Adagrad(parameters, local.lr, weight_decay=decay)


def trained(
    model: nn.Module, inputs: Tensor, labels: Tensor, local: Client, order: str, seed: int
) -> dict[str, Tensor]:
    worker, g = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    rule, size = torch_rule(local, list(worker.parameters())), local.batch_size or len(labels)
    for _ in range(local.epochs):
        rows = torch.randperm(len(labels), generator=g) if order == "shuffled" else torch.arange(len(labels))
        for part in rows.split(size):
            rule.zero_grad()
            nn.functional.cross_entropy(worker(inputs[part]), labels[part]).backward()
            rule.step()
    before = dict(model.named_parameters())
    return {n: (p - before[n]).detach() for n, p in worker.named_parameters()}


def wrong_claims(local: Client, steps: int) -> Iterator[tuple[str, Client]]:
    others = [c for c in OPTIMIZERS.values() if c.optimizer != local.optimizer]
    if steps == 1:  # the same update but for the last digits
        same = {"adam": ("adagrad", "adamw"), "adagrad": ("adam", "adamw")}.get(local.optimizer, ())
        others = [c for c in others if c.optimizer not in same]
    for other in others:  # at its own rate, and at the client's
        yield "optimiser", dataclasses.replace(other, epochs=local.epochs, batch_size=local.batch_size)
        yield "optimiser", dataclasses.replace(other, epochs=local.epochs, batch_size=local.batch_size, lr=local.lr)
    if steps > 1:
        if local.optimizer in ("sgd", "rmsprop"):
            for momentum in (0.0, 0.5, 0.95):
                yield (
                    "momentum",
                    dataclasses.replace(local, momentum=momentum, nesterov=local.nesterov and momentum > 0),
                )
        if local.optimizer in ("adam", "adamw"):
            yield "memory", dataclasses.replace(local, beta1=0.8)
            yield "memory", dataclasses.replace(local, beta2=0.99)
        if local.optimizer == "rmsprop":
            yield "memory", dataclasses.replace(local, alpha=0.9)
    for decay in (0.0, 2e-4, 3e-3, 0.1):
        # Beside a rate of 0.001, decay apart from the gradient that is as small as rounding makes no difference.
        if local.weight_decay != decay and not (decay == 2e-4 and local.optimizer != "sgd"):
            yield "decay", dataclasses.replace(local, weight_decay=decay)
    for epochs in (local.epochs - 1, local.epochs + 1, 2 * local.epochs):
        if epochs > 0:
            yield "epochs", dataclasses.replace(local, epochs=epochs)
    for factor in (0.5, 0.9, 1.1, 10.0):
        yield "rate", dataclasses.replace(local, lr=factor * local.lr)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def outcome(
    model: nn.Module, update: dict[str, Tensor], inputs: Tensor, labels: Tensor, claim: Client
) -> tuple[str, str]:
    try:
        setup = setup_of(model, update, inputs, labels, Scenario(local=claim, seed=1000), "cpu")
    except BadInput as error:
        return REFUSED, str(error)
    found = setup.victims.belonging
    assert found is not None
    return (ACCEPTED if found.sure else OPEN), found.why


def drawn(data: Dataset, steps: int, g: torch.Generator) -> tuple[Tensor, Tensor, dict[str, int]]:
    """A batch, and how the steps are cut: epochs over all of it, or over mini-batches."""
    size = int(torch.randint(1, 9, (), generator=g))
    inputs, labels = data.take(torch.randperm(len(data), generator=g)[:size])
    parts = [p for p in (1, 2, 5) if steps % p == 0 and size >= p and -(-size // -(-size // p)) == p]
    parts_drawn = parts[int(torch.randint(len(parts), (), generator=g))]
    cut = {"epochs": steps // parts_drawn, "batch_size": 0 if parts_drawn == 1 else -(-size // parts_drawn)}
    return inputs, labels, cut


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2, help="of each optimiser, number of steps and network")
    parser.add_argument("--order", default="given", choices=("given", "shuffled"))
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--steps", nargs="*", type=int, default=STEPS)
    parser.add_argument("--minutes", type=float, default=600.0, help="after which no further case is begun")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    data, began = load("digits"), time.perf_counter()
    right: dict[str, Counter[str]] = {}
    wrong: dict[str, Counter[str]] = {}
    named = 0
    cells = [(n, s, o) for _ in range(asked.cases) for o in OPTIMIZERS for s in asked.steps for n in asked.networks]
    for number, (network, steps, name) in enumerate(cells, 1):
        if time.perf_counter() - began > 60 * asked.minutes:
            break
        g = torch.Generator().manual_seed(number)
        inputs, labels, cut = drawn(data, steps, g)
        local = dataclasses.replace(OPTIMIZERS[name], **cut)
        torch.manual_seed(number)
        model = load_model(network, data.spec, number).eval()
        update = trained(model, inputs, labels, local, asked.order, number)
        choices = list(wrong_claims(local, steps))
        kinds = list(dict.fromkeys(kind for kind, _ in choices))
        kind = kinds[int(torch.randint(len(kinds), (), generator=g))]
        some = [c for k, c in choices if k == kind]
        claim = some[int(torch.randint(len(some), (), generator=g))]
        found, why = outcome(model, update, inputs, labels, local)
        right.setdefault(name, Counter())[found] += 1
        against, said = outcome(model, update, inputs, labels, claim)
        wrong.setdefault(kind, Counter())[against] += 1
        named += "it fits --local" in said or "say --local" in said
        if asked.verbose or found != ACCEPTED or against != REFUSED:
            say(f"{network} {as_text(local)} N={len(labels)}: {found} {why}")
            say(f"    {kind} {as_text(claim)}: {against} {said}")
    lines = ["| claim | accepted | cannot tell | refused |", "|---|---|---|---|"]
    for words, table in (("right", right), ("wrong", wrong)):
        for name, counts in table.items():
            lines.append(f"| {words}: {name} | {counts[ACCEPTED]} | {counts[OPEN]} | {counts[REFUSED]} |")
        total = sum(table.values(), Counter())
        lines.append(f"| **all {words} ones** | {total[ACCEPTED]} | {total[OPEN]} | {total[REFUSED]} |")
    refused = sum(table[REFUSED] for table in wrong.values())
    lines.append(
        f"\n{named} of {refused} refusals say which `--local` fits. {time.perf_counter() - began:.0f} seconds."
    )
    say("\n".join(lines))
    if asked.out:
        asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
