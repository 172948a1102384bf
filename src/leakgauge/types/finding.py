"""What was measured: findings, one per attack, configuration and trial, and the rows that they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from leakgauge.types.plain import read

NOT_APPLICABLE = "not applicable: "  # how the error of an attack begins that does not fit the model
UNDEFENDED = "none"  # the configuration without any defense


@dataclass(frozen=True)
class Flag:
    """A reason not to take a result at face value, and what to do about it."""

    id: str  # that findings and rows name it by
    reason: str  # not to take the result at face value
    remedy: str  # what to do about it


@dataclass(frozen=True)
class Finding:
    """One (configuration, attack, trial): scores, flags, or the error that stopped it."""

    attack: str  # its row in the table; a number, or "on a decoy", distinguishes rows of one attack
    defense: str  # "none" or the chain as written
    adaptive: bool  # does the attack know the defense?
    trial: int  # from 0
    seed: int  # of the trial
    scores: Mapping[str, float | None]  # metric -> mean over the trial's records, null where none is claimed
    records: tuple[Mapping[str, float | None], ...] = ()  # per private sample: metric -> score, null: not claimed
    objective: float | None = None  # the attack's own, at its end
    steps: int = 0  # of the search
    evaluations: int = 0  # gradients of the model
    seconds: float = 0.0  # share of the wall clock of the trials that ran together
    flags: tuple[str, ...] = ()  # ids; the reasons are in the report's `flags`
    error: str | None = None  # that stopped the trial
    spec: str = ""  # the attack with all fields that differ from their defaults
    note: str = ""  # what the attack has to say about its own way: the rule it chose, say
    is_decoy: bool = False  # the attack on a decoy update, scored against the true samples: no leak, whatever it scores
    ranks: tuple[float, ...] = ()  # per record: the true sample's place among the candidates of `Control`, 1 is nearest
    certified: int | None = None  # records that the attack proved right without the truth; null where it proves nothing
    labels_proven: int | None = None  # labels that the update itself proves to be there; null where nothing is proven
    credible: tuple[bool | None, ...] = ()  # per record: is its score evidence? null: too few others to decide
    solved: bool | None = None  # did the objective meet the attack's own threshold? null where it has none
    film: tuple[int, ...] = ()  # steps whose pictures are kept for a film strip
    trace: tuple[float, ...] = ()  # own objective along the kept attempt: a few values, its first and last among them
    labels: tuple[int | None, ...] | None = None  # that the attack read, where there is no truth to score them against

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """From plain values, as JSON has them."""
        finding: Self = read(cls, plain, "finding")
        return finding


@dataclass(frozen=True)
class Interval:
    """A value with the range about it; None where it could not be computed.

    For a mean the range is its 95 % interval, for a median (the name says so) the quartiles.
    """

    value: float | None  # null where nothing was measured
    low: float | None  # lower end of the range; null where it could not be computed
    high: float | None  # upper end of the range; null where it could not be computed


_NOT_COUNTED = Interval(None, None, None)


@dataclass(frozen=True)
class Rate:
    """How many of the attacked records were recovered, with its exact (Clopper-Pearson) 95 % interval."""

    value: float  # recovered / records
    low: float  # lower end of the 95 % interval
    high: float  # upper end of the 95 % interval
    recovered: int  # records that count
    records: int  # that were attacked
    criterion: str  # when a record counts: "ssim>=0.6"


@dataclass(frozen=True)
class Tail:
    """The exposed end of a row's records, in the metric of the criterion: what a mean hides."""

    metric: str  # of the criterion
    worst: float | None  # the most exposed record
    one_in_twenty: float | None  # one record in twenty comes out at least this well; failed ones count as not
    median: float | None  # of all records
    records: int  # that were attacked


@dataclass(frozen=True)
class Control:
    """The recoveries compared with the true samples, and with others that they should not look like."""

    candidates: int  # other private samples beside each true one
    same_label: bool  # do they carry the true label? If not, reading the label alone already beats them
    records: int  # that were attacked
    first: int  # true samples that are nearer to their recovery than every candidate
    rank_median: float  # 1 is nearest of all, (candidates + 2) / 2 is what guessing gives
    p_mean: float  # permutation p-value of the mean closeness: all records together
    p_best: float  # the same for the closest record alone: one that leaks among many that do not
    better: bool | None  # than chance, by any of the three at 5 %; null where so few candidates could not show it
    p_first: float = 1.0  # binomial p-value of how many are first
    convincing: bool | None = None  # evidence of a leak, by any of the three at 0.1 %; null where it could not be


@dataclass(frozen=True)
class Exposure:
    """How much of each record is in the update of one configuration, estimated before any attack.

    The cosine of the record's own gradient with what is shared. It is the client's estimate, from its own samples: no
    attack sees it, and no result is chosen by it.
    """

    defense: str  # the configuration
    alignment: tuple[tuple[float, ...], ...]  # per trial and record: cosine of its own gradient with what is shared
    agreement: float | None  # rank correlation with how well the strongest attack recovered each record


@dataclass(frozen=True)
class Summary:
    """One row of the table: an attack against a defense, over all trials; failures are counted in."""

    attack: str  # as in the findings
    defense: str  # "none" or the chain as written
    adaptive: bool  # does the attack know the defense?
    trials: int  # all of them, failed ones too
    failed: int  # trials that raised or diverged
    metrics: Mapping[str, Interval]  # "psnr_mean_per_image" -> interval; reduction is in the name
    success_rate: Rate  # records that meet the criterion with a credible score
    worst: Mapping[str, float | None]  # the most exposed record: trial, record, scores
    floor: Mapping[str, Mapping[str, Interval]]  # baseline -> metric -> interval
    flags: tuple[str, ...] = ()  # ids that any of the findings raised
    seconds: float = 0.0  # of all trials together
    error: str | None = None  # set when no trial could run
    steps_median: Interval = _NOT_COUNTED  # per trial, over those that ran; reports of old do not have it
    evaluations_median: Interval = _NOT_COUNTED  # gradients of the model, in the same way
    tail: Tail | None = None  # null where no record has a score
    control: Control | None = None  # null where no record is claimed or there is nothing to compare with
    labels_proven: int = 0  # labels that the updates themselves prove to be there, over all trials
    met: int | None = None  # records that meet the criterion, credible or not
    undecided: int = 0  # those that may be recovered or chance: there are too few others to decide


def cell_name(attack: str, defense: str, adaptive: bool) -> str:
    """What identifies one cell of the attack x defense table."""
    return f"{attack} | {defense} | {'adaptive' if adaptive else 'plain'}"
