"""What defenses cost: a federation with each beside one without, in accuracy, seconds and bytes per round, guarantee.

The federation they are compared with has no defense, plain FedAvg and no encryption. All run in lock step, round by
round, so that a busy machine slows all alike. What is finished is kept, and the same call goes on from there.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import leakgauge
from leakgauge import catalog
from leakgauge.client.partial import freeze_others
from leakgauge.data import Dataset, load
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.errors import BadInput, NotApplicable, Unreadable
from leakgauge.federation.aggregators.aggregator import Aggregator
from leakgauge.federation.aggregators.fedavg import FedAvg
from leakgauge.federation.centralised import NAME as CENTRALISED
from leakgauge.federation.centralised import Centralised
from leakgauge.federation.federation import Federated, clients_of
from leakgauge.federation.poisoning import Poison
from leakgauge.federation.rounds import accuracy
from leakgauge.models import load_model
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.reading.sealed import opened_tensors, sealed_tensors
from leakgauge.setup.plan import configurations, parse_chain
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import UNDEFENDED, AuditReport, Cost, Costs, Federation, Guarantee, Interval, Partition, Scenario

_STATE = "state.safetensors"
_ALONE = "Clients try each other's models: each client sees the update of every other client of its round."
_MIXED = (
    "Clients try mixtures of each other's models. Mixing is not differential privacy: a client that gets all of a "
    "round's mixtures solves them for every single update if it knows the weights, and reads the weights off the zeros "
    "of ReLU networks if it does not."
)
_BYTES = 4  # of a number on the wire
_CLIENTS = 20  # where a scenario whose cost is asked for has no clients


@dataclass(frozen=True)
class Round:
    """One round of one configuration; accuracy where the test split was looked at."""

    round: int
    accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class Trained:
    """One configuration after all rounds."""

    defense: str
    rounds: tuple[Round, ...]
    bytes_up: int  # per client and round
    bytes_down: int
    guarantee: Guarantee | None
    aggregator: str = "fedavg"
    encryption: str = "none"
    trust: tuple[str, ...] = ()  # who holds which key, who sees what, and what breaks if they work together
    client_weights: tuple[float | None, ...] = ()  # mean over the rounds a client was in; None if it never was
    poisoned: int = 0  # so many of the first clients harm the federation

    @property
    def name(self) -> str:
        """The defense, and what else differs from plain FedAvg."""
        if self.aggregator == CENTRALISED:
            return CENTRALISED
        return _label(self.defense, self.aggregator, self.encryption)

    @property
    def poisoned_weight(self) -> tuple[float, float] | None:
        """Mean weights of poisoned and of honest clients; None where there are not both."""
        bad = [w for w in self.client_weights[: self.poisoned] if w is not None]
        good = [w for w in self.client_weights[self.poisoned :] if w is not None]
        return (float(np.mean(bad)), float(np.mean(good))) if bad and good else None

    @property
    def accuracy(self) -> float:
        """At the last look."""
        return next(r.accuracy for r in reversed(self.rounds) if r.accuracy is not None)

    @property
    def round_seconds(self) -> Interval:
        """The median round with its quartiles; the first round, which sets everything up, is left out."""
        seconds = [r.seconds for r in self.rounds[1:]] or [self.rounds[0].seconds]
        low, middle, high = np.percentile(seconds, [25, 50, 75])
        return Interval(float(middle), float(low), float(high))


@dataclass(frozen=True)
class TrainingReport:
    """The defended federation, and the undefended one it is compared with."""

    scenario: Scenario
    federation: Federation
    clients: int
    trained: tuple[Trained, ...]  # the centralised model if it was asked for, then the undefended, then the others
    environment: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.as_dict(),
            "federation": self.federation.as_dict(),
            "clients": self.clients,
            **_plain(self.trained[-1]),
            "configurations": [_plain(t) for t in self.trained],
            "environment": dict(self.environment),
        }


def train_federation(
    scenario: Scenario,
    federation: Federation,
    *,
    baseline: bool = True,
    centralised: bool = False,
    out: Path | None = None,
    fresh: bool = False,
    device: str = "auto",
    data_root: Path | None = None,
    watch: Callable[[int, int, str], None] = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> TrainingReport:
    """Train each configuration of the scenario, and the undefended one with them if `baseline`.

    `centralised` adds one model that trains on the samples of each round's clients in one place.

    If the state in `out` is damaged or another training's, `notice` says so and the training begins anew.
    """
    where, dtype = pick_device(device), dtype_of(scenario.precision)
    set_precision(scenario.precision)
    train, test = load(scenario.data, "train", data_root), load(scenario.data, "test", data_root)
    clients = clients_of(train, scenario.partition, federation.most, scenario.seed)
    start = load_model(scenario.model, train.spec, scenario.seed, scenario.weights).to(where, dtype)
    freeze_others(start, scenario.local.trained)
    planned = _configurations(scenario, federation, baseline)
    running = _federations(scenario, planned, start, train, clients)
    if centralised:  # on the samples that the federation's aggregator leaves to training
        own = FedAvg(validation=catalog.build("aggregators", federation.aggregator).validation)
        one = Centralised(start, train, clients, federation, scenario.local, (), scenario.seed, aggregator=own)
        running = {CENTRALISED: one} | running
    planned[CENTRALISED] = UNDEFENDED, federation
    names, said = tuple(running), {"scenario": scenario.as_dict(), "federation": federation.as_dict()}
    key = key_of(**said, names=names, version=leakgauge.__version__)
    done: dict[str, list[Round]] = {name: [] for name in names}
    if out is not None:
        make_folder(out)
        if not fresh:
            done = _restored(out / _STATE, key, running, notice) or done
    for number in range(len(done[names[0]]) + 1, federation.rounds + 1):
        look = number % federation.evaluate == 0 or number == federation.rounds
        for name, federated in running.items():
            seconds = federated.run_round(number)
            done[name].append(Round(number, _checked(federated, test, number) if look else None, seconds))
        last = {name: [r.accuracy for r in rows if r.accuracy is not None] for name, rows in done.items()}
        watch(number, federation.rounds, ", ".join(f"{name} {found[-1]:.3f}" for name, found in last.items() if found))
        if out is not None and look:
            _save(out / _STATE, key, running, done)
    trained = tuple(_finished(planned[name][0], running[name], done[name]) for name in names)
    return TrainingReport(scenario, federation, len(clients), trained, environment(where))


def _federations(
    scenario: Scenario,
    planned: Mapping[str, tuple[str, Federation]],
    start: nn.Module,
    train: Dataset,
    clients: Sequence[Tensor],
) -> dict[str, Federated]:
    """Each planned federation at its beginning, by its name."""
    return {
        name: Federated(
            start,
            train,
            clients,
            settings,
            scenario.local,
            parse_chain(chain),
            scenario.seed,
            poison=None if settings.poison == "none" else Poison.from_text(settings.poison),
            aggregator=catalog.build("aggregators", settings.aggregator),
            encryption=None if settings.encryption == "none" else catalog.build("encryptions", settings.encryption),
        )
        for name, (chain, settings) in planned.items()
    }


def _configurations(scenario: Scenario, asked: Federation, baseline: bool) -> dict[str, tuple[str, Federation]]:
    """Defense and settings of each federation by its name: the plain one first, then each defense as asked."""
    plain = dataclasses.replace(asked, aggregator="fedavg", encryption="none")
    chains = tuple(dict.fromkeys(d for d in scenario.defenses if d != UNDEFENDED))
    wanted = [(chain, asked) for chain in chains or ((UNDEFENDED,) if asked != plain else ())]
    pairs = [(UNDEFENDED, plain), *wanted] if baseline or not wanted else wanted
    return {_label(chain, f.aggregator, f.encryption): (chain, f) for chain, f in pairs}


def _label(defense: str, aggregator: str, encryption: str) -> str:
    more = [s for s, usual in ((aggregator, "fedavg"), (encryption, "none")) if s != usual]
    return ", ".join([defense, *more])


def _checked(federated: Federated, test: Dataset, number: int) -> float:
    if not all(bool(torch.isfinite(p).all()) for p in federated.model.parameters()):
        got = f"{federated.local.lr:g}, which led to NaN or infinity by round {number}"
        allowed = "small enough for the training to stay finite"
        raise BadInput("local: lr", allowed=allowed, got=got, do="choose a smaller one")
    return accuracy(federated.model, test)


def _finished(chain: str, federated: Federated, rounds: Sequence[Round]) -> Trained:
    if isinstance(federated, Centralised):  # nothing was exchanged, because everything was handed over
        trust = "The centralised model has all samples in one place. It protects nobody; it is there to compare with."
        return Trained(chain, tuple(rounds), 0, 0, None, aggregator=CENTRALISED, trust=(trust,))
    shapes = {n: p.shape for n, p in federated.model.named_parameters() if p.requires_grad}
    dense = _BYTES * sum(s.numel() for s in shapes.values())
    adding = [d for d in federated.defenses if d.in_sum > 1]  # masked words are neither left out nor shortened
    sent = [d.bytes_up(shapes, _BYTES) for d in adding or federated.defenses]
    up = sent[-1] if adding else min([dense, *sent])
    received = [d.bytes_down(shapes, _BYTES, federated.federation.per_round) for d in federated.defenses]
    guarantee = next((g for d in reversed(federated.defenses) if (g := d.guarantee()) is not None), None)
    down, scheme, settings = max([dense, *received]), federated.encryption, federated.federation
    if scheme is not None:
        up = down = scheme.bytes_up(dense // _BYTES)
    if federated.aggregator.cross_validates:
        trials = -(-settings.rounds // federated.aggregator.every)
        down += settings.per_round * (dense if scheme is None else up) * trials // settings.rounds  # the models to try
    sums, counts = federated.ledger.T.tolist()
    weighs = type(federated.aggregator).weights is not Aggregator.weights or federated.poison is not None
    return Trained(
        chain,
        tuple(rounds),
        up,
        down,
        guarantee,
        aggregator=settings.aggregator,
        encryption=settings.encryption,
        trust=_trust(federated),
        client_weights=tuple(s / n if n else None for s, n in zip(sums, counts, strict=True)) if weighs else (),
        poisoned=0 if federated.poison is None else federated.poison.clients,
    )


def _trust(federated: Federated) -> tuple[str, ...]:
    """What the person who signs this off has to know about keys and about who sees what."""
    scheme, aggregator = federated.encryption, federated.aggregator
    said = [] if scheme is None else [*scheme.trust()]
    if scheme is not None and aggregator.cross_validates:
        said.append("The losses that clients report reach the server in the clear.")
    if scheme is not None and aggregator.remembers:
        said.append(f"The clients, who hold the key, take the step of {aggregator.name} themselves.")
    if aggregator.cross_validates:
        said.append(_ALONE if aggregator.mixing == 1 else _MIXED)
        said.append("Losses are taken as clients report them; a client that lies about them moves the weights.")
    return tuple(said)


def _plain(trained: Trained) -> dict[str, Any]:
    time, both = trained.round_seconds, trained.poisoned_weight
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(trained).items()}
    del plain["poisoned"]
    weights = both and {"poisoned": both[0], "honest": both[1], "ratio": both[0] / both[1]}
    seconds = {"median": time.value, "iqr": [time.low, time.high]}
    return plain | {"poisoned_weight": weights, "accuracy": trained.accuracy, "round_seconds": seconds}


def _save(path: Path, key: str, running: Mapping[str, Federated], done: Mapping[str, Sequence[Round]]) -> None:
    tensors: dict[str, Tensor] = {}
    for place, federated in enumerate(running.values()):
        parts = {"model": federated.model.state_dict(), "server": federated.server}
        parts |= {f"memory/{client}": kept for client, kept in federated.memory.items()}
        tensors |= {f"{place}/{part}/{n}": t for part, held in parts.items() for n, t in held.items()}
        tensors[f"{place}/ledger"] = federated.ledger
    rounds = {name: [dataclasses.asdict(r) for r in rows] for name, rows in done.items()}
    write_whole(path, sealed_tensors(key, tensors, rounds), private=True)


def _restored(
    path: Path, key: str, running: Mapping[str, Federated], notice: Callable[[str], None]
) -> dict[str, list[Round]] | None:
    """The rounds that are done, with models and memories put back; None if there are none of this training."""
    if not path.exists():
        return None
    try:
        tensors, rounds = opened_tensors(path, key)
    except Unreadable as error:
        notice(f"{path}: {error}; the training begins anew")
        return None
    for place, federated in enumerate(running.values()):
        device = next(federated.model.parameters()).device
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "server": {}}
        for name, tensor in tensors.items():
            number, part, *own = name.split("/")
            if part == "memory":
                part, *own = own  # the client
            if number == str(place):
                parts.setdefault(part, {})["/".join(own)] = tensor.to(device)
        federated.model = copy.deepcopy(federated.model)  # all begin with the same one
        federated.model.load_state_dict(parts.pop("model"))
        federated.server, federated.ledger = parts.pop("server"), tensors[f"{place}/ledger"]
        federated.memory |= {int(client): kept for client, kept in parts.items() if client.isdecimal()}
    return {name: [Round(**r) for r in rows] for name, rows in rounds.items()}


def with_costs(
    report: AuditReport,
    federation: Federation,
    *,
    device: str = "auto",
    data_root: Path | None = None,
    watch: Callable[[int, int, str], None] = lambda *_: None,
) -> AuditReport:
    """The report with a cost for each of its configurations; one that cannot train says why."""
    scenario = trainable(report.scenario)
    refused: dict[str, str] = {}
    chains = [c for c in configurations(scenario) if c != UNDEFENDED]
    while True:
        asked = dataclasses.replace(scenario, defenses=tuple(c for c in chains if c not in refused))
        try:
            trained = train_federation(asked, federation, device=device, data_root=data_root, watch=watch)
            break
        except NotApplicable as error:
            refused[_culprit(asked, federation, device, data_root)] = str(error)
    rows = {t.defense: Cost(t.defense, t.accuracy, t.round_seconds, t.bytes_up) for t in trained.trained}
    rows |= {name: Cost(name, None, Interval(None, None, None), 0, why) for name, why in refused.items()}
    setting = f"{federation.rounds} rounds, {federation.per_round} of {trained.clients} clients in each"
    return dataclasses.replace(report, costs=Costs(tuple(rows[c] for c in (UNDEFENDED, *chains)), setting))


def trainable(scenario: Scenario) -> Scenario:
    """The same with its data spread over clients, evenly if the scenario says nothing."""
    if scenario.partition.kind != "none":
        return scenario
    return dataclasses.replace(scenario, partition=Partition(kind="iid", clients=_CLIENTS))


def _culprit(scenario: Scenario, federation: Federation, device: str, data_root: Path | None) -> str:
    """The first configuration that cannot take a single round."""
    short = dataclasses.replace(federation, rounds=1)
    for chain in scenario.defenses:
        try:
            alone = dataclasses.replace(scenario, defenses=(chain,))
            train_federation(alone, short, baseline=False, device=device, data_root=data_root)
        except NotApplicable:
            return chain
    raise NotApplicable("the undefended federation cannot train on this model")
