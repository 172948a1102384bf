"""Aggregators on the same cases and seeds: accuracy, the difference to the first aggregator, and clients' weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.federation.centralised import NAME as CENTRALISED
from leakgauge.federation.federation import Federated
from leakgauge.federation.rounds import accuracy
from leakgauge.lab.two_gaussians.cases import CASES, SPEC
from leakgauge.lab.two_gaussians.training import AdamFederated, Local
from leakgauge.metrics.intervals import bootstrap_mean
from leakgauge.models import load_model
from leakgauge.settings import unknown_name
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import Federation, Interval

MODEL = "mlp:hidden=8,activation=sigmoid"
AGGREGATORS = (  # all hold back the same samples
    "fedavg:validation=0.1",
    "fedboosting",
    "fedboosting:over=median",
    "fedboosting:form=softmax,metric=accuracy",
)
GRID = 101  # points along each side of the square
_TEST = 1000  # samples of each client that nobody trains on


@dataclass(frozen=True)
class Run:
    """One federation of one seed."""

    case: str
    aggregator: str
    seed: int
    accuracy: float  # on samples of all clients, with their right labels
    weights: tuple[float, ...]  # of each client, mean over rounds

    @property
    def ratio(self) -> float:
        """The first client's weight over that of a mean other one; 1 where there is no other."""
        if len(self.weights) == 1:
            return 1.0
        return self.weights[0] * (len(self.weights) - 1) / sum(self.weights[1:])


@dataclass(frozen=True)
class Row:
    """One aggregator on one case, over all seeds."""

    case: str
    aggregator: str
    accuracy: Interval
    gain: Interval  # over the first aggregator, seed by seed
    ratio: Interval  # the poisoned client's weight over a mean honest one's; the first client's where none is poisoned


@dataclass(frozen=True)
class Study:
    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    seeds: int
    first_seed: int
    rounds: int
    samples: int
    local: Local
    environment: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def compare(
    cases: Sequence[str] = tuple(CASES),
    aggregators: Sequence[str] = AGGREGATORS,
    *,
    seeds: int = 20,
    seed: int = 0,
    rounds: int = 10,
    samples: int = 500,
    local: Local | None = None,
    watch: Callable[[int, int], None] = lambda *_: None,
) -> Study:
    """Every aggregator on every case and seed, on the CPU. The others are compared with the first aggregator.

    `centralised` stands for one model that trains on all clients' samples, none of them poisoned.
    """
    local = local or Local()
    for what, value, least in (("seeds", seeds, 1), ("rounds", rounds, 1), ("samples", samples, 20)):
        if value < least:
            raise BadInput(what, allowed=f"at least {least}", got=value, do="choose a value in that range")
    for case in cases:
        if case not in CASES:
            raise unknown_name("case", case, CASES)
    asked = [(c, a, s) for c in cases for s in range(seed, seed + seeds) for a in aggregators]
    runs = []
    for number, (case, spec, one) in enumerate(asked):
        watch(number, len(asked))
        runs.append(one_run(case, spec, one, rounds, samples, local))
    rows = [_row(c, a, aggregators[0], runs) for c in cases for a in aggregators]
    return Study(tuple(rows), tuple(runs), seeds, seed, rounds, samples, local, environment(pick_device("cpu")))


def one_run(case: str, aggregator: str, seed: int, rounds: int, samples: int, local: Local | None = None) -> Run:
    """Train a federation and test it on samples that nobody trained on."""
    return run_of(trained(case, aggregator, seed, rounds, samples, local), case, aggregator, seed)


def run_of(federated: Federated, case: str, aggregator: str, seed: int) -> Run:
    """The test accuracy and the weights of a federation after its last round."""
    sums, counts = federated.ledger.T
    test, _ = CASES[case].draw("test", _TEST, seed)
    return Run(case, aggregator, seed, accuracy(federated.model, test), tuple((sums / counts).tolist()))


@torch.no_grad()
def agreement(one: nn.Module, other: nn.Module) -> float:
    """The share of the grid points on which both models decide alike."""
    line = torch.linspace(0, 1, GRID)
    points = torch.cartesian_prod(line, line)
    return float((one(points).argmax(1) == other(points).argmax(1)).double().mean())


def trained(case: str, aggregator: str, seed: int, rounds: int, samples: int, local: Local | None = None) -> Federated:
    """Train a federation of this case to its last round."""
    local, poison = local or Local(), CASES[case].poison
    data, clients = CASES[case].draw("train", samples, seed)
    if aggregator == CENTRALISED:  # one client with all samples, which holds back as many as FedBoosting does
        clients, poison, aggregator = [torch.cat(clients)], None, AGGREGATORS[0]
    settings = Federation(rounds=rounds, per_round=len(clients), aggregator=aggregator)
    kind = AdamFederated if local.optimizer == "adam" else Federated
    federated = kind(
        load_model(MODEL, SPEC, seed),
        data,
        clients,
        settings,
        local.training,
        (),
        seed,
        aggregator=catalog.build("aggregators", aggregator),
        poison=poison,
    )
    for number in range(1, rounds + 1):
        federated.run_round(number)
    return federated


def _row(case: str, aggregator: str, first: str, runs: Sequence[Run]) -> Row:
    mine = [r for r in runs if (r.case, r.aggregator) == (case, aggregator)]
    usual = [r for r in runs if (r.case, r.aggregator) == (case, first)]
    scores, others = (torch.tensor([r.accuracy for r in some], dtype=torch.float64) for some in (mine, usual))
    ratio = torch.tensor([r.ratio for r in mine], dtype=torch.float64)
    return Row(case, aggregator, bootstrap_mean(scores), bootstrap_mean(scores - others), bootstrap_mean(ratio))
