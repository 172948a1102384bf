"""The nouns that travel from `Scenario` to `AuditReport`. Frozen; each says what it holds and its shapes.

T is the trials axis: victims that are attacked side by side and never mix. N is the number of private
samples behind one update. One victim is T = 1.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor, nn

from leakgauge.errors import BadInput, HiddenFact, LeakgaugeError
from leakgauge.settings import Settings, setting, unknown_name

SCHEMA = 1
CRITERION = {"image": ("ssim", 0.6), "tabular": ("mse", 1e-3)}  # when a record counts as recovered


# --- what the client has ---------------------------------------------------------------------------


@dataclass(frozen=True)
class DataSpec:
    """What is public about a kind of data: its shape and range, never its contents."""

    name: str
    shape: tuple[int, ...]  # (C, H, W) for images, (features,) for tables; values in [0, 1]
    classes: int
    kind: str  # "image" or "tabular"
    mean: tuple[float, ...] = ()  # published channel constants, for models that normalise
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class Batch:
    """The secret: private samples of T clients, N each."""

    inputs: Tensor  # (T, N, *shape), float, in [0, 1]
    labels: Tensor  # (T, N), int64

    @property
    def trials(self) -> int:
        return self.inputs.shape[0]

    def take(self, trials: Sequence[int]) -> Batch:
        index = torch.as_tensor(trials, device=self.inputs.device)
        return Batch(self.inputs[index], self.labels[index])


@dataclass(frozen=True)
class LocalTraining(Settings):
    """What one client does before it shares: one gradient, or several local steps and the difference."""

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "the client's local training"

    kind: str = setting("fedsgd", "what is shared: one gradient, or a weight difference", choices=("fedsgd", "fedavg"))
    epochs: int = setting(1, "local passes over the client's samples (fedavg)", low=1)
    batch_size: int = setting(0, "local mini-batch, 0 for all samples at once (fedavg)", low=0)
    lr: float = setting(0.01, "local learning rate (fedavg)", above=0)
    batchnorm: str = setting(
        "eval", "BatchNorm uses running (eval) or batch (train) statistics", choices=("eval", "train")
    )


# --- what is shared --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedUpdate:
    """What leaves the client, by parameter name.

    `kind` is "gradient" (mean loss gradient) or "weight_delta" (weights after minus weights before).
    """

    kind: str
    tensors: Mapping[str, Tensor]  # name -> (T, *parameter)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)  # name -> (T, *buffer), if any are shared

    @property
    def trials(self) -> int:
        return next(iter(self.tensors.values())).shape[0]

    def take(self, trials: Sequence[int]) -> SharedUpdate:
        return SharedUpdate(self.kind, _take(self.tensors, trials), _take(self.buffers, trials))

    def map(self, change: Callable[[str, Tensor], Tensor]) -> SharedUpdate:
        """The same update with every parameter tensor changed by `change(name, tensor)`."""
        return dataclasses.replace(self, tensors={n: change(n, t) for n, t in self.tensors.items()})


# A client step: (model, private batch, one seed per trial) -> what it shares.
Step = Callable[[nn.Module, Batch, Sequence[int]], SharedUpdate]


# --- what the attacker knows -----------------------------------------------------------------------


class Fact(enum.Enum):
    """One thing an attacker may be told besides the model and the update."""

    INPUT_SPEC = "input-spec"  # DataSpec: shape, range, number of classes
    NUM_SAMPLES = "num-samples"  # int: N
    LOCAL_TRAINING = "local-training"  # LocalTraining: kind, epochs, mini-batch, rate, BatchNorm mode
    PUBLIC_DATA = "public-data"  # Batch with T = 1: samples of the same kind, none of them a victim
    LABELS = "labels"  # (T, N) true labels: an oracle, flagged
    BATCHNORM_STATISTICS = "batchnorm-statistics"  # layer -> ((T, C) mean, (T, C) var): an oracle, flagged


ORACLES = frozenset({Fact.LABELS, Fact.BATCHNORM_STATISTICS})
_PER_TRIAL = ORACLES


@dataclass(frozen=True)
class ThreatModel:
    """A named, cited set of facts, and what the attacker may change in the model it sends."""

    name: str
    summary: str
    paper: str
    facts: frozenset[Fact]
    may_change: str = "nothing"  # "nothing", "parameters" or "architecture"

    @property
    def oracles(self) -> frozenset[Fact]:
        """Facts that no published attacker of this kind really has."""
        return self.facts & ORACLES


_USUAL = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

THREAT_MODELS: Mapping[str, ThreatModel] = {
    t.name: t
    for t in (
        ThreatModel(
            "honest-but-curious",
            "a server that follows the protocol and reads every client's update",
            "Zhu et al. 2019; Geiping et al. 2020",
            _USUAL | {Fact.PUBLIC_DATA},
        ),
        ThreatModel(
            "eavesdropper",
            "someone on a client or its link who reads the update before it is aggregated",
            "Wei et al. 2020 (CPL)",
            _USUAL,
        ),
        ThreatModel(
            "malicious-parameters",
            "a server that sends manipulated parameters in the agreed architecture",
            "Wen et al. 2022 (fishing); Wang et al. 2023 (MKOR); Boenisch et al. 2023 (trap weights)",
            _USUAL | {Fact.PUBLIC_DATA},
            "parameters",
        ),
        ThreatModel(
            "malicious-architecture",
            "a server that may also change the architecture it sends",
            "Fowl et al. 2022 (imprint module)",
            _USUAL | {Fact.PUBLIC_DATA},
            "architecture",
        ),
    )
}
_ORACLE_WORDS = {"labels": Fact.LABELS, "batchnorm": Fact.BATCHNORM_STATISTICS}


def threat_model(name: str) -> ThreatModel:
    """By name; `+labels` or `+batchnorm` behind it adds an oracle: `honest-but-curious+labels`."""
    base, *extras = name.split("+")
    if base not in THREAT_MODELS:
        raise unknown_name("threat model", base, THREAT_MODELS)
    found = THREAT_MODELS[base]
    for word in extras:
        if word not in _ORACLE_WORDS:
            raise unknown_name("oracle behind the threat model", word, _ORACLE_WORDS)
        found = dataclasses.replace(
            found,
            name=f"{found.name}+{word}",
            summary=f"{found.summary}; told the true {word}" + (" statistics" if word == "batchnorm" else ""),
            facts=found.facts | {_ORACLE_WORDS[word]},
        )
    return found


@dataclass(frozen=True)
class Observation:
    """All that an attack sees: the model, the update and the revealed facts. Asking for more raises."""

    model: nn.Module
    update: SharedUpdate
    threat_model: ThreatModel
    revealed: Mapping[Fact, Any]

    @property
    def trials(self) -> int:
        return self.update.trials

    def knows(self, fact: Fact) -> bool:
        return fact in self.revealed

    def fact(self, fact: Fact) -> Any:
        if fact not in self.revealed:
            raise HiddenFact(f"the threat model {self.threat_model.name!r} does not reveal {fact.value!r}")
        return self.revealed[fact]

    def take(self, trials: Sequence[int]) -> Observation:
        """The same observation for some of the trials."""
        facts = {f: _take(v, trials) if f in _PER_TRIAL else v for f, v in self.revealed.items()}
        return dataclasses.replace(self, update=self.update.take(trials), revealed=facts)


# --- what the attacker does ------------------------------------------------------------------------


@dataclass(frozen=True)
class Reconstruction:
    """What an attack claims, one row per trial. `objective` is the attack's own, never a score."""

    inputs: Tensor | None  # (T, N, *shape), unclamped; None for attacks on labels or properties alone
    labels: Tensor | None  # (T, N), int64
    objective: Tensor  # (T,)
    steps: Tensor  # (T,) optimiser steps, over all restarts
    evaluations: Tensor  # (T,) gradient evaluations, over all restarts
    seconds: float = 0.0  # wall clock for all trials together
    trace: Tensor | None = None  # (T, S) own objective along the kept attempt; nan behind its end


Progress = Callable[[float], None]  # told the share of the work that is done, 0 to 1


def no_progress(_: float) -> None:
    """For callers that do not watch."""


@dataclass(frozen=True)
class Attack(Settings):
    """One published attack. Fields are its hyper-parameters; model and update arrive at the call.

    A subclass sets `name`, `summary`, `paper` and `needs`, and writes `reconstruct`.
    """

    paper: ClassVar[str]
    needs: ClassVar[frozenset[Fact]]
    baseline: ClassVar[bool] = False  # True for floors that ignore the update

    @final
    def __call__(
        self, observation: Observation, seeds: Sequence[int], progress: Progress = no_progress
    ) -> Reconstruction:
        """Check what the attack needs, then run it: one seed per trial."""
        missing = sorted(f.value for f in self.needs if not observation.knows(f))
        if missing:
            raise HiddenFact(
                f"attack {self.name!r} needs {', '.join(missing)}, which the threat model "
                f"{observation.threat_model.name!r} hides; choose another attack or threat model"
            )
        if len(seeds) != observation.trials:
            raise BadInput(
                "seeds",
                allowed=f"{observation.trials}, one per trial",
                got=len(seeds),
                do="give one seed per trial",
            )
        result = self.reconstruct(observation, tuple(seeds), progress)
        for what, tensor in (
            ("inputs", result.inputs),
            ("labels", result.labels),
            ("objective", result.objective),
        ):
            if tensor is not None and tensor.shape[0] != observation.trials:
                raise LeakgaugeError(
                    f"attack {self.name!r} returned {what} for {tensor.shape[0]} of {observation.trials} trials"
                )
        return result

    def reconstruct(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        raise NotImplementedError  # abstract


@dataclass(frozen=True)
class TamperingServer(Attack):
    """A server that changes the model before the client trains on it, then reads the update."""

    changes: ClassVar[str] = "parameters"  # or "architecture": what the threat model must allow

    def prepare(self, model: nn.Module, data: DataSpec) -> nn.Module:
        """The model that is sent instead. Must not touch the one it is given."""
        raise NotImplementedError  # abstract


# --- what the client does against it ---------------------------------------------------------------


@dataclass(frozen=True)
class Guarantee:
    """An accounted promise. Nothing un-accounted is called differential privacy."""

    epsilon: float
    delta: float
    unit: str  # "sample" or "client"


@dataclass(frozen=True)
class Defense(Settings):
    """One defence: where it acts, how to beat it, what it promises. Override what applies."""

    paper: ClassVar[str]

    def prepare(self, model: nn.Module) -> nn.Module:
        """Put something into the network; the given model stays untouched."""
        return model

    def wrap(self, step: Step) -> Step:
        """Change the data before, the local step itself, or the update after."""
        return step

    def aggregate(self, updates: SharedUpdate) -> SharedUpdate:
        """What the server does with the clients' updates: (T clients) -> T = 1. The mean by default."""
        return updates.map(lambda _, t: t.mean(0, keepdim=True))

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:  # noqa: ARG002
        """The versions of `attack` that know this defence is there; empty if knowing does not help it."""
        return ()

    def guarantee(self) -> Guarantee | None:
        return None


# --- what the audit says ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """All that is needed to repeat a measurement."""

    model: str = "lenet-dlg"
    data: str = "photos32"
    batch_size: int = 1  # N, private samples behind one update
    batch_labels: str = "any"  # "any", "distinct" or "same" labels within one batch
    local: LocalTraining = LocalTraining()
    defenses: tuple[str, ...] = ()  # each a chain such as "gaussian:std=0.1"; "a+b" runs a, then b
    threat_model: str = "honest-but-curious"
    attacks: tuple[str, ...] = ()  # empty: the default suite
    trials: int = 6
    seed: int = 0
    weights: str | None = None  # checkpoint of the model; None: freshly initialised from the seed

    def __post_init__(self) -> None:
        for name, low in (("batch_size", 1), ("trials", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise BadInput(
                    name,
                    allowed=f"a whole number, at least {low}",
                    got=repr(value),
                    do=f"set {name} = {low} or more",
                )
        if self.batch_labels not in ("any", "distinct", "same"):
            raise BadInput(
                "batch_labels",
                allowed="one of any, distinct, same",
                got=repr(self.batch_labels),
                do="choose one of these",
            )
        for name in ("model", "data", "threat_model"):
            if not isinstance(getattr(self, name), str):
                raise BadInput(name, allowed="text", got=repr(getattr(self, name)), do=f'write {name} = "..."')
        for name in ("defenses", "attacks"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(v, str) for v in value):
                raise BadInput(name, allowed="a list of names", got=repr(value), do=f'write {name} = ["..."]')
            object.__setattr__(self, name, tuple(value))
        threat_model(self.threat_model)

    @property
    def seeds(self) -> tuple[int, ...]:
        """One per trial, so that a trial is the same whether run alone or among others."""
        return tuple(self.seed + t for t in range(self.trials))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        known = {f.name for f in dataclasses.fields(cls)}
        for key in values:
            if key not in known:
                raise unknown_name("scenario key", key, known)
        values = dict(values)
        if not isinstance(values.get("local", LocalTraining()), LocalTraining):
            if not isinstance(values["local"], Mapping):
                raise BadInput("local", allowed="a table", got=repr(values["local"]), do="write a [local] section")
            values["local"] = LocalTraining.from_mapping(values["local"])
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return plain | {
            "local": self.local.as_dict(),
            "defenses": list(self.defenses),
            "attacks": list(self.attacks),
        }


@dataclass(frozen=True)
class Flag:
    """A reason not to take a result at face value, and what to do about it."""

    id: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """One (configuration, attack, trial): scores, flags, or the error that stopped it."""

    attack: str
    defense: str  # "none" or the chain as written
    adaptive: bool
    trial: int
    seed: int
    scores: Mapping[str, float | None]  # mean over the trial's matched records
    records: tuple[Mapping[str, float | None], ...] = ()  # one entry per private sample
    objective: float | None = None
    steps: int = 0
    evaluations: int = 0
    seconds: float = 0.0  # share of the wall clock of the trials that ran together
    flags: tuple[str, ...] = ()  # ids; the reasons are in the report's `flags`
    error: str | None = None
    spec: str = ""  # the attack with all fields that differ from their defaults


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval; None where it could not be computed."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Rate:
    """How many of the attacked records were recovered, with its exact (Clopper-Pearson) 95 % interval."""

    value: float
    low: float
    high: float
    recovered: int
    records: int
    criterion: str  # "ssim>=0.6"


@dataclass(frozen=True)
class Summary:
    """One row of the table: an attack against a defence, over all trials; failures are counted in."""

    attack: str
    defense: str
    adaptive: bool
    trials: int
    failed: int  # trials that raised or diverged
    metrics: Mapping[str, Interval]  # "psnr_mean_per_image" -> interval; reduction is in the name
    success_rate: Rate
    worst: Mapping[str, float | None]  # the most exposed record: trial, record, scores
    floor: Mapping[str, Mapping[str, Interval]]  # baseline -> metric -> interval
    flags: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str | None = None  # set when no trial could run


@dataclass(frozen=True)
class Verdict:
    """What the audit concludes, per configuration and as one sentence."""

    leaks: bool  # does any configuration under test give records away?
    sentence: str
    configurations: tuple[Mapping[str, Any], ...]  # defense, leaks, worst attack, rate, guarantee, sentence
    gate: Mapping[str, Any] | None = None  # criterion, passed, by what


@dataclass(frozen=True)
class AuditReport:
    """Findings, what they add up to, and where they were measured."""

    scenario: Scenario
    data: DataSpec
    findings: tuple[Finding, ...]
    summary: tuple[Summary, ...]
    verdict: Verdict
    flags: tuple[Flag, ...]
    told: tuple[str, ...]  # facts the attacker was given
    environment: Mapping[str, str]
    interrupted: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON. `from_dict` gives back an equal report."""
        rows = []
        for row in self.summary:
            plain = dataclasses.asdict(row)
            rows.append(plain | plain.pop("metrics"))
        return {
            "schema": SCHEMA,
            "scenario": self.scenario.as_dict(),
            "data": dataclasses.asdict(self.data),
            "findings": [dataclasses.asdict(f) for f in self.findings],
            "summary": rows,
            "verdict": dataclasses.asdict(self.verdict),
            "flags": [dataclasses.asdict(f) for f in self.flags],
            "told": list(self.told),
            "environment": dict(self.environment),
            "interrupted": self.interrupted,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        if plain.get("schema") != SCHEMA:
            raise BadInput(
                "report schema",
                allowed=str(SCHEMA),
                got=repr(plain.get("schema")),
                do="write the report anew with this version",
            )
        spec: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain["data"].items()}
        return cls(
            scenario=Scenario.from_mapping(plain["scenario"]),
            data=DataSpec(**spec),
            findings=tuple(
                Finding(**f | {"records": tuple(f["records"]), "flags": tuple(f["flags"])}) for f in plain["findings"]
            ),
            summary=tuple(_summary_from(row) for row in plain["summary"]),
            verdict=Verdict(**plain["verdict"] | {"configurations": tuple(plain["verdict"]["configurations"])}),
            flags=tuple(Flag(**f) for f in plain["flags"]),
            told=tuple(plain["told"]),
            environment=plain["environment"],
            interrupted=plain["interrupted"],
        )


@dataclass(frozen=True)
class Pictures:
    """True samples and what each attack made of them, matched to the true order and clamped to [0, 1]."""

    true: Tensor  # (T, N, *shape)
    recovered: Mapping[str, Tensor]  # cell name -> (T, N, *shape); see `cell_name`


def cell_name(attack: str, defense: str, adaptive: bool) -> str:
    """What identifies one cell of the attack x defence table."""
    return f"{attack} | {defense} | {'adaptive' if adaptive else 'plain'}"


def _summary_from(row: Mapping[str, Any]) -> Summary:
    own = {f.name for f in dataclasses.fields(Summary)}
    metrics = {k: Interval(**v) for k, v in row.items() if k not in own}
    floor = {b: {m: Interval(**v) for m, v in row["floor"][b].items()} for b in row["floor"]}
    rest = {k: v for k, v in row.items() if k in own}
    rest |= {
        "metrics": metrics,
        "floor": floor,
        "flags": tuple(row["flags"]),
        "success_rate": Rate(**row["success_rate"]),
    }
    return Summary(**rest)


def _take(value: Any, trials: Sequence[int]) -> Any:
    if isinstance(value, Tensor):
        return value[torch.as_tensor(trials, device=value.device)]
    if isinstance(value, Mapping):
        return {k: _take(v, trials) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_take(v, trials) for v in value)
    return value
