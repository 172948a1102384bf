"""What an audit concludes: per configuration, against the gate, and as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.types.defense import Guarantee
from leakgauge.types.finding import Rate


@dataclass(frozen=True)
class LabelsRead:
    """Labels that the update gives away, beyond what a guess names."""

    attack: str  # that named most of them
    share: float  # of the labels
    guess: float  # the share that guessing names
    records: int | None  # whose labels were looked for; null where the attack is already described in records
    read: int | None  # of these records
    proven: int  # labels that the updates themselves prove to be there


@dataclass(frozen=True)
class Traces:
    """Recoveries too poor to count that still point to their own records, far beyond chance."""

    attack: str  # that the recoveries are of
    first: int  # recoveries that are nearer to their own record than to every other one
    records: int  # that were attacked
    candidates: int  # other records that each recovery was compared with


@dataclass(frozen=True)
class LowerSide:
    """What was certainly recovered, by all attacks together."""

    recovered: int = 0  # records that some attack recovered
    records: int = 0  # that were attacked
    at_least: float = 0.0  # share of all records that so many of so many show, at 95 %
    certified: int | None = None  # recoveries that one attack proved right by itself; null where none proves anything


@dataclass(frozen=True)
class TrainingBound:
    """The limit over the whole training, as its user stated it."""

    gamma: float  # share of records that nobody exceeds
    how: str  # it was computed


@dataclass(frozen=True)
class UpperSide:
    """What nobody can exceed, or why there is no such limit: then all but `why` is null."""

    guaranteed: bool = False  # is there a limit?
    gamma: float | None = None  # share of records that nobody exceeds, from what is seen here
    mu: float | None = None  # of Gaussian differential privacy
    steps: int | None = None  # noised steps that it counts
    unit: str | None = None  # that it protects: "sample" or "client"
    kappa: Rate | None = None  # success of a blind guess, as measured; `high` is what the limit takes
    training: TrainingBound | None = None  # the limit over the whole training, where that was stated
    why: str | None = None  # there is no limit


@dataclass(frozen=True)
class ConfigurationVerdict:
    """What the attacks on one configuration add up to."""

    defense: str  # "none" or the chain as written
    leaks: bool  # was any record recovered?
    sentence: str  # the same in words
    undecided: int = 0  # records that may be recovered or chance: there are too few others to decide
    traces: Traces | None = None  # of records that were not recovered
    attack: str | None = None  # the strongest one; null where none claims records
    adaptive: bool = False  # does the strongest attack know the defense?
    rate: Rate | None = None  # records that the strongest attack recovered
    guarantee: Guarantee | None = None  # that the defense carries
    labels: LabelsRead | None = None  # where more were read than a guess names
    tested: bool = True  # did any attack run?
    lower: LowerSide = LowerSide()  # what was certainly recovered
    upper: UpperSide = UpperSide()  # what nobody can exceed
    sides: str = ""  # lower and upper side in words
    unproven: str = ""  # why it is not clear that the update came from these records, if so
    standing: str = "unknown"  # "leaks", "protected" or "unknown"


@dataclass(frozen=True)
class GateResult:
    """Was the limit kept that was set beforehand?"""

    metric: str  # that records must not reach the threshold in
    threshold: float  # that makes a record count
    passed: bool  # false also where nothing was scored, or where chance could not be excluded
    sentence: str  # why, in one line
    confidence: float | None = None  # of the interval; null: no attacked record may reach it
    share: float | None = None  # of all records that may reach it, where a confidence is asked for
    reached: int | None = None  # records that some attack brought to the threshold; null where nothing was scored
    records: int = 0  # that were attacked
    at_most: float | None = None  # share of all records that may reach it, at the confidence; null where not shown
    defense: str | None = None  # the configuration that comes nearest to failing


@dataclass(frozen=True)
class Proven:
    """What updates prove by themselves, of all clients together, where there are no samples to compare with."""

    records: int  # that carry a proof
    of_records: int  # behind all updates
    labels: int  # that are proven to be there
    of_labels: int  # behind all updates


@dataclass(frozen=True)
class Verdict:
    """What the audit concludes, per configuration and as one sentence."""

    leaks: bool  # does any configuration under test give records away?
    sentence: str  # the same in words, the gravest configuration first
    configurations: tuple[ConfigurationVerdict, ...]  # in the order of the table
    gate: GateResult | None = None  # where one was set
    proven: Proven | None = None  # where nothing could be scored; there are no configurations then
    doubt: str = ""  # what speaks against the claimed training, where no batch proves it; nothing is cleared then
