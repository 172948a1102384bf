"""What an attacker knows: facts, named threat models, and the observation that holds an attack to them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leakgauge.errors import HiddenFact
from leakgauge.settings import unknown_name
from leakgauge.types.client import SharedUpdate, take

if TYPE_CHECKING:  # what only names things, such as `leakgauge list`, does not wait for torch
    from torch import nn


class Fact(enum.Enum):
    """One thing an attacker may be given besides the model and the update."""

    INPUT_SPEC = "input-spec"  # DataSpec: shape, range, number of classes
    NUM_SAMPLES = "num-samples"  # int: N
    LOCAL_TRAINING = "local-training"  # Client: kind, epochs, mini-batch, rate, BatchNorm mode
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
            summary=f"{found.summary}; given the true {word}" + (" statistics" if word == "batchnorm" else ""),
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
        facts = {f: take(v, trials) if f in _PER_TRIAL else v for f, v in self.revealed.items()}
        return dataclasses.replace(self, update=self.update.take(trials), revealed=facts)
