"""Who can be recognised on the pictures that the attacks of a finished run recovered?

Each attack is compared with a ceiling (the true pictures), with the floors that every run has (the mean of public
pictures, a guess from noise) and with chance. The label is the identity, so the classes have to be people.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.client.partition import shares
from leakgauge.data import Dataset, draw_victims, load
from leakgauge.errors import BadInput
from leakgauge.lab.identification import STEPS, Identifier, check_steps, train_identifier
from leakgauge.metrics.intervals import chance, hit_rates
from leakgauge.models import parameter_count
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import NOT_APPLICABLE, SCHEMA, AuditReport, Finding, Pictures, Rate, Scenario, cell_name

CEILING = "true pictures"


@dataclass(frozen=True)
class FinishedRun:
    """The report and the pictures of a finished audit."""

    name: str
    report: AuditReport
    pictures: Pictures


@dataclass(frozen=True)
class ReidentificationRow:
    """How often the right person is among the first of the classifier's answers, over all records of one cell."""

    run: str
    attack: str
    defense: str
    adaptive: bool
    failed: int  # records of trials that raised, diverged or never ran: misses
    hits: Mapping[str, Rate]  # "top_1", "top_3", "top_5"


@dataclass(frozen=True)
class ReidentificationReport:
    """The rows, and how good the classifier is on true pictures that it has not seen."""

    data: str
    people: int
    classifier: Mapping[str, Any]
    held_out: Mapping[str, Rate]  # on the whole test split
    chance: Mapping[str, float]
    rows: tuple[ReidentificationRow, ...]
    environment: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}


def reidentify(
    runs: Sequence[FinishedRun],
    *,
    seed: int = 0,
    steps: int = STEPS,
    data_root: Path | None = None,
    device: str = "auto",
    notice: Callable[[str], None] = lambda _: None,
) -> ReidentificationReport:
    """Train one classifier on the public part of the data, and let it name the pictures that each attack recovered."""
    where = pick_device(device)
    names = dict.fromkeys(run.report.scenario.data for run in runs)
    if len(names) != 1:
        raise BadInput(
            "runs", allowed="one or more on the same data", got=", ".join(names) or "none", do="ask one by one"
        )
    (data,) = names
    if runs[0].report.data.kind != "image":
        raise BadInput(f"data {data!r}", allowed="pictures", got="a table", do="attack faces: --data lfw")
    test = load(data, "test", data_root)
    truths = [_labels_of_victims(run, test) for run in runs]  # checked before the training, which takes minutes
    train = load(data, "train", data_root)
    check_steps(steps)
    notice(f"training the classifier on {len(train)} pictures ...")
    identifier = train_identifier(train, seed, where, steps)
    rows = [row for run, labels in zip(runs, truths, strict=True) for row in _rows(run, labels, identifier)]
    return ReidentificationReport(
        data=data,
        people=test.spec.classes,
        classifier=_described(identifier),
        held_out=_held_out(identifier, test),
        chance=chance(test.spec.classes),
        rows=tuple(rows),
        environment=environment(where),
    )


def _labels_of_victims(run: FinishedRun, test: Dataset) -> Tensor:
    """(T, N) labels of the victims, drawn again as the run drew them; refused if the run kept other pictures."""
    scenario: Scenario = run.report.scenario
    pool = shares(test.labels, scenario.partition, scenario.seed)
    batch = draw_victims(test, scenario.trials, scenario.batch_size, scenario.seed, scenario.batch_labels, pool)
    kept = run.pictures.true
    if kept.shape != batch.inputs.shape or not torch.allclose(kept.float(), batch.inputs, atol=1e-5):
        raise BadInput(
            f"run {run.name!r}",
            allowed=f"a run on the victims that data {scenario.data!r} has now",
            got="other pictures",
            do="give the --data-root of that run, or run it again",
        )
    return batch.labels


def _rows(run: FinishedRun, labels: Tensor, identifier: Identifier) -> list[ReidentificationRow]:
    """The ceiling first, then every table cell of the run in its order."""
    records = labels.numel()
    none_failed = torch.zeros(records, dtype=torch.bool)
    cells = [(CEILING, "none", False, run.pictures.true, none_failed)]
    for summary in run.report.summary:
        cell = (summary.attack, summary.defense, summary.adaptive)
        found = [f for f in run.report.findings if (f.attack, f.defense, f.adaptive) == cell]
        if any(f.is_decoy for f in found):
            continue  # a decoy shows the same person, and the classifier was trained on it
        shown = run.pictures.recovered.get(cell_name(*cell))
        if shown is None and (not summary.error or summary.error.startswith(NOT_APPLICABLE)):
            continue  # an attack on labels or properties has no pictures to show, and one that does not fit made none
        whole = {f.trial for f in found if _is_whole(f)}
        failed = torch.tensor([t not in whole for t in range(len(labels))]).repeat_interleave(labels.shape[1])
        cells.append((*cell, torch.zeros_like(run.pictures.true) if shown is None else shown, failed))
    rows = []
    for attack, defense, adaptive, shown, failed in cells:
        scores = identifier.scores(shown.flatten(0, 1).float())
        hits = hit_rates(scores, labels.flatten(), failed)
        rows.append(ReidentificationRow(run.name, attack, defense, adaptive, int(failed.sum()), hits))
    return rows


def _is_whole(finding: Finding) -> bool:
    return finding.error is None and "diverged" not in finding.flags


def _held_out(identifier: Identifier, test: Dataset) -> Mapping[str, Rate]:
    scores = torch.cat([identifier.scores(test.take(part)[0]) for part in torch.split(torch.arange(len(test)), 1024)])
    return hit_rates(scores, test.labels, torch.zeros(len(test), dtype=torch.bool))


def _described(identifier: Identifier) -> dict[str, Any]:
    return {
        "network": "six convolutions with BatchNorm at 32 x 32 pixels",
        "parameters": parameter_count(identifier.network),
        "training_samples": identifier.samples,
        "steps": identifier.steps,
        "seed": identifier.seed,
        "seconds": identifier.seconds,
    }
