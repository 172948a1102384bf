"""All that is needed to repeat a measurement."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from leakgauge.errors import BadInput
from leakgauge.settings import Settings, unknown_name
from leakgauge.types.client import Client, Partition, Training
from leakgauge.types.knowledge import threat_model

PRECISIONS = ("float32", "tf32", "float64")
SUITE_NAMES = ("quick", "standard", "full")  # what they hold: `leakgauge.setup.suites`
SECTIONS: Mapping[str, type[Settings]] = {"partition": Partition, "local": Client, "training": Training}
_CHOICES = {
    "batch_labels": ("any", "distinct", "same"),
    "variants": ("both", "plain", "adaptive"),
    "precision": PRECISIONS,
    "suite": SUITE_NAMES,
}
_LARGEST = 2**31 - 1  # seeds of trials and of models stay well inside what every generator takes


@dataclass(frozen=True)
class Scenario:
    """All that is needed to repeat a measurement."""

    model: str = "lenet-dlg"  # the network, with its fields
    data: str = "photos32"  # where private samples come from
    batch_size: int = 1  # N, private samples behind one update
    batch_labels: str = "any"  # "any", "distinct" or "same" labels within one batch
    partition: Partition = field(default_factory=Partition)  # who holds which samples
    local: Client = field(default_factory=Client)  # what a client does before it shares
    training: Training = field(default_factory=Training)  # what the global model went through before
    defenses: tuple[str, ...] = ()  # each a chain such as "gaussian:std=0.1"; "a+b" runs a, then b
    threat_model: str = "honest-but-curious"  # what the attacker may see and change
    shared_layers: str = "all"  # layers whose tensors are seen: "first:2", "last:1" or names, "conv1+fc"
    attacks: tuple[str, ...] = ()  # empty: the suite
    suite: str = "quick"  # about a minute, ten minutes or two hours, for a scenario that names no attacks
    ledger: bool = False  # rerun the strongest attack without each fact that it was given
    metrics: tuple[str, ...] = ()  # scores besides mse, psnr and ssim: "lpips", "mae" ...
    assume: str = ""  # a chain that informed attackers take for the true one; empty: they know the true one
    variants: str = "both"  # attackers who know the defense ("adaptive"), who do not ("plain"), or both
    gate: str | None = (
        None  # "ssim=0.5": the audit fails if any record under test reaches this; see `leakgauge.verdict.gate`
    )
    trials: int = 6  # updates that are attacked side by side
    seed: int = 0  # of the first trial; each further one has the next number
    weights: str | None = None  # checkpoint of the model; None: freshly initialised from the seed
    update: str | None = None  # a saved update, or a recorder's folder, instead of a simulated client; see `own_update`
    round: int | None = None  # with a recorder's folder: of which round; None for the earliest
    blind: bool = False  # with `update`: `data` says what kind of samples it is, and holds none that are behind it
    precision: str = "float32"  # of updates and attacks; "tf32" rounds products on a GPU, "float64" is the reference

    def __post_init__(self) -> None:
        counts = (("batch_size", 1), ("trials", 1), ("seed", 0), *((("round", 0),) if self.round is not None else ()))
        for name, low in counts:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _LARGEST:
                allowed = f"a whole number from {low} to {_LARGEST}"
                raise BadInput(name, allowed=allowed, got=repr(value), do=f"for example {name} = {max(low, 1)}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                got = repr(getattr(self, name))
                raise BadInput(name, allowed=f"one of {', '.join(choices)}", got=got, do="choose one of these")
        for name in (
            "model",
            "data",
            "threat_model",
            "shared_layers",
            "assume",
            *(n for n in ("weights", "gate", "update") if getattr(self, n) is not None),
        ):
            if not isinstance(getattr(self, name), str):
                raise BadInput(name, allowed="text", got=repr(getattr(self, name)), do=f'write {name} = "..."')
        for name in ("ledger", "blind"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(
                    name,
                    allowed="true or false",
                    got=repr(getattr(self, name)),
                    do=f"write {name} = true, or leave it out",
                )
        for name in ("defenses", "attacks", "metrics"):
            value = getattr(self, name)
            if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
                raise BadInput(name, allowed="a list of names", got=repr(value), do=f'write {name} = ["..."]')
            object.__setattr__(self, name, tuple(value))
        threat_model(self.threat_model)
        if self.assume and self.variants == "plain":
            raise BadInput(
                "assume",
                allowed='left out with variants = "plain"',
                got=repr(self.assume),
                do="let attackers play who know the defense, or leave it out",
            )

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
        for name, section in SECTIONS.items():
            if name in values and not isinstance(values[name], section):
                if not isinstance(values[name], Mapping):
                    raise BadInput(name, allowed="a table", got=repr(values[name]), do=f"write a [{name}] section")
                values[name] = section.from_mapping(values[name])
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values: ready for JSON and TOML, and read back by `from_mapping`."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        lists = {name: list(value) for name, value in plain.items() if isinstance(value, tuple)}
        return plain | lists | {name: getattr(self, name).as_dict() for name in SECTIONS}
