"""What an audit says: findings, the rows they add up to, and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.types.client import DataSpec
from leakgauge.types.ledger import Ablation, Skipped
from leakgauge.types.scenario import Scenario
from leakgauge.types.triage import Clue

SCHEMA = 1
_LISTS = ("records", "flags", "ranks", "trace", "credible", "film")  # of a finding, that JSON knows as lists
NOT_APPLICABLE = "not applicable: "  # how the error of an attack begins that does not fit the model
UNDEFENDED = "none"  # the configuration without any defence
CRITERION = {"image": ("ssim", 0.6), "tabular": ("mse", 1e-3)}  # when a record counts as recovered


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
    note: str = ""  # what the attack has to say about its own way: the rule it chose, say
    is_decoy: bool = False  # the attack on a decoy update, scored against the true samples: no leak, whatever it scores
    ranks: tuple[float, ...] = ()  # per record: the true sample's place among the candidates of `Control`, 1 is nearest
    certified: int | None = None  # records that the attack proved right without the truth; None where it proves nothing
    labels_proven: int | None = None  # labels that the update itself proves to be there; None where nothing is proven
    credible: tuple[bool | None, ...] = ()  # per record: is its score evidence? None: too few others to tell
    solved: bool | None = None  # did the objective meet the attack's own threshold? None where it has none
    film: tuple[int, ...] = ()  # steps whose pictures are kept for a film strip
    trace: tuple[float, ...] = ()  # own objective along the kept attempt: a few values, its first and last among them
    labels: tuple[int | None, ...] | None = None  # that the attack read, where there is no truth to score them against

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        lists = {name: tuple(plain.get(name, ())) for name in _LISTS}
        labels = plain.get("labels")
        return cls(**dict(plain) | lists | {"labels": None if labels is None else tuple(labels)})


@dataclass(frozen=True)
class Interval:
    """A value with the range about it; None where it could not be computed.

    For a mean the range is its 95 % interval, for a median (the name says so) the quartiles.
    """

    value: float | None
    low: float | None
    high: float | None


_NOT_COUNTED = Interval(None, None, None)


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
class Tail:
    """The exposed end of a row's records, in the metric of the criterion: what a mean hides."""

    metric: str
    worst: float | None  # the most exposed record
    one_in_twenty: float | None  # one record in twenty comes out at least this well; failed ones count as not
    median: float | None
    records: int


@dataclass(frozen=True)
class Control:
    """The recoveries compared with the true samples, and with others that they should not look like."""

    candidates: int  # other private samples beside each true one
    same_label: bool  # do they carry the true label? If not, reading the label alone already beats them
    records: int
    first: int  # true samples that are nearer to their recovery than every candidate
    rank_median: float  # 1 is nearest of all, (candidates + 2) / 2 is what guessing gives
    p_mean: float  # permutation p-value of the mean closeness: all records together
    p_best: float  # the same for the closest record alone: one that leaks among many that do not
    better: bool | None  # than chance, by any of the three at 5 %; None where so few candidates could not show it
    p_first: float = 1.0  # binomial p-value of how many are first
    convincing: bool | None = None  # evidence of a leak, by any of the three at 0.1 %; None where it could not be


@dataclass(frozen=True)
class Exposure:
    """How much of each record is in the update of one configuration, estimated before any attack.

    The cosine of the record's own gradient with what is shared. It is the client's estimate, from its own samples: no
    attack sees it, and no result is chosen by it.
    """

    defense: str
    alignment: tuple[tuple[float, ...], ...]  # per trial and record
    agreement: float | None  # rank correlation with how well the strongest attack recovered each record


@dataclass(frozen=True)
class Summary:
    """One row of the table: an attack against a defence, over all trials; failures are counted in."""

    attack: str
    defense: str
    adaptive: bool
    trials: int
    failed: int  # trials that raised or diverged
    metrics: Mapping[str, Interval]  # "psnr_mean_per_image" -> interval; reduction is in the name
    success_rate: Rate  # records that meet the criterion with a credible score
    worst: Mapping[str, float | None]  # the most exposed record: trial, record, scores
    floor: Mapping[str, Mapping[str, Interval]]  # baseline -> metric -> interval
    flags: tuple[str, ...] = ()
    seconds: float = 0.0  # of all trials together
    error: str | None = None  # set when no trial could run
    steps_median: Interval = _NOT_COUNTED  # per trial, over those that ran; reports of old do not have it
    evaluations_median: Interval = _NOT_COUNTED  # gradients of the model, in the same way
    tail: Tail | None = None
    control: Control | None = None  # None where no record is claimed or there is nothing to compare with
    labels_proven: int = 0  # labels that the updates themselves prove to be there, over all trials
    met: int | None = None  # records that meet the criterion, credible or not
    undecided: int = 0  # those that may be recovered or chance: there are too few others to tell


@dataclass(frozen=True)
class Proven:
    """What updates prove by themselves, of all clients together, where there are no samples to compare with."""

    records: int  # that carry a proof
    of_records: int
    labels: int  # that are proven to be there
    of_labels: int


@dataclass(frozen=True)
class Verdict:
    """What the audit concludes, per configuration and as one sentence."""

    leaks: bool  # does any configuration under test give records away?
    sentence: str
    configurations: tuple[Mapping[str, Any], ...]  # defense, leaks, worst attack, rate, guarantee, sentence
    gate: Mapping[str, Any] | None = None  # criterion, passed, by what
    proven: Proven | None = None  # where nothing could be scored; there are no configurations then


@dataclass(frozen=True)
class Cost:
    """What a configuration costs in federated training, beside the undefended one; an error if it could not train."""

    defense: str
    accuracy: float | None
    round_seconds: Interval  # the median round, with its quartiles
    bytes_up: int  # per client and round
    error: str | None = None


@dataclass(frozen=True)
class Costs:
    """One row per configuration, undefended first, and how they were trained."""

    rows: tuple[Cost, ...]
    setting: str  # "50 rounds, 10 of 100 clients in each"


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
    costs: Costs | None = None  # where training was asked for
    exposure: tuple[Exposure, ...] = ()  # one per configuration where it could be told
    triage: tuple[Clue, ...] = ()  # what could be said before any attack, where it was asked for
    skipped: tuple[Skipped, ...] = ()  # attacks of the suite that were not run, and why
    ledger: tuple[Ablation, ...] = ()  # what each fact was worth, where it was asked for
    setup: str = ""  # the key of what was attacked: model, batch, updates; that of the pictures kept beside it
    clients: tuple[str, ...] = ()  # whose updates these are, trial by trial, where somebody knows their names

    @property
    def scored(self) -> bool:
        """Were there samples to compare with?"""
        return self.verdict.proven is None

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
            "costs": None if self.costs is None else dataclasses.asdict(self.costs),
            "exposure": [dataclasses.asdict(e) for e in self.exposure],
            "triage": [dataclasses.asdict(clue) for clue in self.triage],
            "skipped": [dataclasses.asdict(s) for s in self.skipped],
            "ledger": [dataclasses.asdict(a) for a in self.ledger],
            "setup": self.setup,
            "clients": list(self.clients),
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
            findings=tuple(Finding.from_dict(f) for f in plain["findings"]),
            summary=tuple(_summary_from(row) for row in plain["summary"]),
            verdict=_verdict_from(plain["verdict"]),
            flags=tuple(Flag(**f) for f in plain["flags"]),
            told=tuple(plain["told"]),
            environment=plain["environment"],
            interrupted=plain["interrupted"],
            costs=_costs_from(plain.get("costs")),
            exposure=tuple(
                Exposure(**e | {"alignment": tuple(map(tuple, e["alignment"]))}) for e in plain.get("exposure", ())
            ),
            triage=tuple(Clue(**clue) for clue in plain.get("triage", ())),
            skipped=tuple(Skipped(**s) for s in plain.get("skipped", ())),
            ledger=tuple(Ablation(**a) for a in plain.get("ledger", ())),
            setup=plain.get("setup", ""),
            clients=tuple(plain.get("clients", ())),
        )


@dataclass(frozen=True)
class Pictures:
    """True samples and what each attack made of them, matched to the true order and clamped to [0, 1].

    Where nobody knows the true ones they are (T, 0, *shape), and what an attack made is as it came: in its own order,
    with further answers behind the first, not-a-number where it claims nothing.
    """

    true: Tensor  # (T, N, *shape)
    recovered: Mapping[str, Tensor]  # cell name -> (T, N, *shape); see `cell_name`
    film: Mapping[str, Tensor] = field(default_factory=dict)  # the same on the way: cell name -> (T, F, N, *shape)


def cell_name(attack: str, defense: str, adaptive: bool) -> str:
    """What identifies one cell of the attack x defence table."""
    return f"{attack} | {defense} | {'adaptive' if adaptive else 'plain'}"


def _verdict_from(plain: Mapping[str, Any]) -> Verdict:
    proven = plain.get("proven")
    typed = {"configurations": tuple(plain["configurations"]), "proven": None if proven is None else Proven(**proven)}
    return Verdict(**dict(plain) | typed)


def _costs_from(plain: Mapping[str, Any] | None) -> Costs | None:
    if plain is None:
        return None
    rows = tuple(Cost(**r | {"round_seconds": Interval(**r["round_seconds"])}) for r in plain["rows"])
    return Costs(rows, plain["setting"])


def _summary_from(row: Mapping[str, Any]) -> Summary:
    own = {f.name for f in dataclasses.fields(Summary)}
    metrics = {k: Interval(**v) for k, v in row.items() if k not in own}
    floor = {b: {m: Interval(**v) for m, v in row["floor"][b].items()} for b in row["floor"]}
    rest = {k: v for k, v in row.items() if k in own}
    rest |= {k: Interval(**row[k]) for k in ("steps_median", "evaluations_median") if k in row}
    rest |= {k: kind(**row[k]) for k, kind in (("tail", Tail), ("control", Control)) if row.get(k) is not None}
    rest |= {
        "metrics": metrics,
        "floor": floor,
        "flags": tuple(row["flags"]),
        "success_rate": Rate(**row["success_rate"]),
    }
    return Summary(**rest)
