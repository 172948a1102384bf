"""What an audit left out, and what each fact that the attacker was given was worth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Skipped:
    """An attack of the suite that was not run, so that nobody takes its silence for a result."""

    attack: str  # by name
    defense: str  # the configuration, or "all"
    adaptive: bool  # does the attack know the defense?
    why: str  # "not applicable: ..." or "not needed: ..."


@dataclass(frozen=True)
class Ablation:
    """The strongest attack of a configuration with one fact changed, on the same victims and seeds."""

    defense: str  # the configuration
    attack: str  # the strongest one on it
    adaptive: bool  # does the attack know the defense?
    fact: str  # "labels"
    audit: str  # as it was in the audit: "inferred"
    instead: str  # as it was here: "given"
    recovered: int | None  # of `records`, in the audit
    recovered_instead: int | None  # with the fact changed
    records: int  # that were attacked
    metric: str  # "ssim"
    mean: float | None  # of the metric, in the audit
    mean_instead: float | None  # with the fact changed
    why_not: str = ""  # set where the fact could not be changed, or the attack could not run without it

    @property
    def sentence(self) -> str:
        """What came of it, in words."""
        if self.why_not:
            return f"not changed: {self.why_not}"
        change = "no change"
        if self.recovered != self.recovered_instead:
            change = f"{self.recovered} of {self.records} records recovered, then {self.recovered_instead}"
        if self.mean is None or self.mean_instead is None:
            return change
        return f"{change}; mean {self.metric} {self.mean:.3g}, then {self.mean_instead:.3g}"
