"""Aggregators on the same cases and seeds: accuracy, the difference to the first aggregator, and clients' weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.fl.federation import Federated
from leakgauge.fl.rounds import accuracy
from leakgauge.metrics.intervals import bootstrap_mean
from leakgauge.models import load_model
from leakgauge.settings import unknown_name
from leakgauge.stage import environment, pick_device
from leakgauge.two_gaussians.cases import CASES, SPEC
from leakgauge.types import Federation, Interval, LocalTraining

MODEL = "mlp:hidden=8,activation=sigmoid"
LOCAL = LocalTraining(kind="fedavg", epochs=1, batch_size=10, lr=1.0)
AGGREGATORS = (  # all keep back the same samples
    "fedavg:validation=0.1",
    "fedboosting",
    "fedboosting:over=median",
    "fedboosting:form=softmax,metric=accuracy",
)
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
        """The first client's weight over that of a mean other one."""
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
    watch: Callable[[int, int], None] = lambda *_: None,
) -> Study:
    """Every aggregator on every case and seed, on the CPU. The first aggregator is what the others are held against."""
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
        runs.append(one_run(case, spec, one, rounds, samples))
    rows = [_row(c, a, aggregators[0], runs) for c in cases for a in aggregators]
    return Study(tuple(rows), tuple(runs), seeds, seed, rounds, samples, environment(pick_device("cpu")))


def one_run(case: str, aggregator: str, seed: int, rounds: int, samples: int) -> Run:
    """A federation trained to its end and tested on samples that nobody trained on."""
    federated = trained(case, aggregator, seed, rounds, samples)
    sums, counts = federated.ledger.T
    test, _ = CASES[case].draw("test", _TEST, seed)
    return Run(case, aggregator, seed, accuracy(federated.model, test), tuple((sums / counts).tolist()))


def trained(case: str, aggregator: str, seed: int, rounds: int, samples: int) -> Federated:
    """A federation of this case after its last round."""
    data, clients = CASES[case].draw("train", samples, seed)
    settings = Federation(rounds=rounds, per_round=len(clients), aggregator=aggregator)
    federated = Federated(
        load_model(MODEL, SPEC, seed), data, clients, settings, LOCAL, (), seed,
        aggregator=catalog.build("aggregators", aggregator), poison=CASES[case].poison,
    )  # fmt: skip
    for number in range(1, rounds + 1):
        federated.run_round(number)
    return federated


def _row(case: str, aggregator: str, first: str, runs: Sequence[Run]) -> Row:
    mine = [r for r in runs if (r.case, r.aggregator) == (case, aggregator)]
    usual = [r for r in runs if (r.case, r.aggregator) == (case, first)]
    scores, others = (torch.tensor([r.accuracy for r in some], dtype=torch.float64) for some in (mine, usual))
    ratio = torch.tensor([r.ratio for r in mine], dtype=torch.float64)
    return Row(case, aggregator, bootstrap_mean(scores), bootstrap_mean(scores - others), bootstrap_mean(ratio))
