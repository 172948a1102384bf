"""A whole audit: findings, the rows they add up to, the verdict, and where it was measured. JSON is made from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from leakgauge.errors import BadInput
from leakgauge.types.client import DataSpec
from leakgauge.types.finding import Exposure, Finding, Flag, Interval, Summary
from leakgauge.types.ledger import Ablation, Skipped
from leakgauge.types.plain import fields_of, read
from leakgauge.types.scenario import Scenario
from leakgauge.types.triage import Clue
from leakgauge.types.verdict import Verdict

if TYPE_CHECKING:  # what only names things, such as `leakgauge list`, does not wait for torch
    from torch import Tensor

REPORT_SCHEMA = 2  # of an audit's JSON: docs/reference/report-schema.md
SCHEMA = 1  # of every other document
_RENAMED = {"stage": "setup", "told": "facts"}  # keys of schema 1 -> keys of schema 2
_RENAMED_IN_FINDINGS = {"control": "is_decoy"}


@dataclass(frozen=True)
class Cost:
    """What a configuration costs in federated training, beside the undefended one; an error if it could not train."""

    defense: str  # the configuration
    accuracy: float | None  # on held-out samples, 0 to 1; null where it could not train
    round_seconds: Interval  # the median round, with its quartiles
    bytes_up: int  # per client and round
    error: str | None = None  # why it could not train


@dataclass(frozen=True)
class Costs:
    """One row per configuration, undefended first, and how they were trained."""

    rows: tuple[Cost, ...]  # one per configuration, undefended first
    setting: str  # "50 rounds, 10 of 100 clients in each"


@dataclass(frozen=True)
class AuditReport:
    """Findings, what they add up to, and where they were measured."""

    scenario: Scenario  # every key of the scenario file, also those at their defaults
    data: DataSpec  # what is public about the data
    findings: tuple[Finding, ...]  # one per attack, configuration and trial
    summary: tuple[Summary, ...]  # one row per attack and configuration
    verdict: Verdict  # what the audit concludes
    flags: tuple[Flag, ...]  # every flag that was raised, explained
    facts: tuple[str, ...]  # that the attacker was given
    environment: Mapping[str, str]  # versions, commit, device, threads, platform, state of the model
    interrupted: bool = False  # was the run cut short? Then it holds finished cells only
    costs: Costs | None = None  # where training was asked for
    exposure: tuple[Exposure, ...] = ()  # one per configuration if it could be determined
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
        plain = {name: _plain(getattr(self, name)) for name in fields_of(AuditReport)}
        rows = [row | row.pop("metrics") for row in plain["summary"]]
        return {"schema": REPORT_SCHEMA, **plain, "scenario": self.scenario.as_dict(), "summary": rows}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Of this schema or of the one before; what is no report raises BadInput or ValueError."""
        schema = plain.get("schema")
        if schema not in (1, REPORT_SCHEMA):
            do = "write the report anew with this version"
            raise BadInput("report schema", allowed=f"1 or {REPORT_SCHEMA}", got=repr(schema), do=do)
        values = {name: value for name, value in plain.items() if name != "schema"}
        if schema == 1:
            values = _from_schema_1(values)
        if isinstance(rows := values.get("summary"), list):
            values["summary"] = [_with_metrics_apart(row) for row in rows]
        report: Self = read(cls, values, "report")
        return report


@dataclass(frozen=True)
class Pictures:
    """True samples and what each attack made of them, matched to the true order and clamped to [0, 1].

    Where nobody knows the true ones they are (T, 0, *shape), and what an attack made is as it came: in its own order,
    with further answers behind the first, not-a-number where it claims nothing.
    """

    true: Tensor  # (T, N, *shape)
    recovered: Mapping[str, Tensor]  # cell name -> (T, N, *shape); see `cell_name`
    film: Mapping[str, Tensor] = field(default_factory=dict)  # the same on the way: cell name -> (T, F, N, *shape)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]


def _with_metrics_apart(row: Any) -> Any:
    """A row of the JSON holds its metrics beside its other keys."""
    if not isinstance(row, Mapping):
        return row
    own = fields_of(Summary)
    return {k: v for k, v in row.items() if k in own} | {"metrics": {k: v for k, v in row.items() if k not in own}}


def _from_schema_1(values: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {_RENAMED.get(name, name): value for name, value in values.items()}
    if isinstance(findings := renamed.get("findings"), list):
        renamed["findings"] = [
            {_RENAMED_IN_FINDINGS.get(k, k): v for k, v in f.items()} if isinstance(f, Mapping) else f for f in findings
        ]
    return renamed
