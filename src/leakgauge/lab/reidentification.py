"""Who can be recognised on the pictures that the attacks of a finished run recovered?

A classifier of people names the person on each recovered picture. It is small enough to be trained on a laptop in a few
minutes: six convolutions on 32 x 32 pixels. It is trained on the train split alone, and victims come from the test
split, so it has never seen a picture of a victim, only others of the same person. Brightness and contrast are taken out
of each picture first, because many updates hide them; a little noise in training teaches it to read recoveries that are
not clean.

Each attack is compared with a ceiling (the true pictures), with the floors that every run has (the mean of public
pictures, a guess from noise) and with chance. The label is the identity, so the classes have to be people.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.client.partition import shares
from leakgauge.data import Dataset, draw_victims, load
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput
from leakgauge.metrics.intervals import chance, hit_rates
from leakgauge.models import parameter_count
from leakgauge.models.layers import activation, named, seeded
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import NOT_APPLICABLE, SCHEMA, AuditReport, DataSpec, Finding, Pictures, Rate, Scenario, cell_name

SIDE = 32  # pixels that every picture is brought to
WIDTH = 24  # channels of the first convolution
BATCH = 64
STEPS = 900  # about 75 passes over 750 faces
_RATE, _DECAY, _SMOOTHING = 2e-3, 1e-2, 0.1  # of AdamW, and of the labels
_TURN, _ZOOM, _SHIFT, _NOISE = 0.15, 0.15, 0.15, 0.1  # largest changes of a training picture
_CHUNK = 256


class Standardize(nn.Module):
    """Scales each picture to 32 x 32 pixels, mean 0 and deviation 1."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (SIDE, SIDE):
            x = F.interpolate(x, (SIDE, SIDE), mode="bilinear", antialias=True)
        middle, spread = x.mean((1, 2, 3), keepdim=True), x.std((1, 2, 3), keepdim=True)
        return (x - middle) / (spread + 1e-3)  # a blank picture stays blank


@dataclass(frozen=True, eq=False)
class Identifier:
    """A trained classifier, and how it was trained."""

    network: nn.Module
    samples: int  # pictures it was trained on
    steps: int
    seed: int
    seconds: float

    def scores(self, pictures: Tensor) -> Tensor:
        """(R, C, H, W) in [0, 1] -> (R, people) probabilities, the mean of a picture and its mirror image."""
        like = next(self.network.parameters())
        with torch.no_grad():
            parts = [
                (self.network(part).softmax(1) + self.network(part.flip(-1)).softmax(1)).cpu() / 2
                for part in torch.split(pictures.to(like), _CHUNK)
            ]
        return torch.cat(parts)


def train_identifier(samples: Dataset, seed: int, device: torch.device, steps: int = STEPS) -> Identifier:
    """Train on all of `samples`, whose labels are the people; the same seed gives the same classifier."""
    if samples.spec.kind != "image":
        raise BadInput("data to identify", allowed="pictures", got=f"the table {samples.spec.name!r}", do="use faces")
    check_steps(steps)
    began = time.perf_counter()
    with seeded(seed):
        network = _network(samples.spec).to(device).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=steps)
    for number in range(steps):
        source = generator(seed, f"identification/{number}")
        inputs, labels = samples.take(torch.randint(len(samples), (BATCH,), generator=source))
        varied = _varied(inputs, source).to(device)
        optimiser.zero_grad()
        loss = F.cross_entropy(network(varied), labels.to(device), label_smoothing=_SMOOTHING)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return Identifier(network.eval(), len(samples), steps, seed, time.perf_counter() - began)


def check_steps(steps: int) -> None:
    if steps < 1:
        raise BadInput("steps", allowed="at least 1", got=steps, do="choose a value in that range")


def _network(data: DataSpec) -> nn.Sequential:
    """3 x [2 x (conv k3, BatchNorm, ReLU), maxpool2], then one dense layer."""
    layers: list[tuple[str, nn.Module]] = [("standardize", Standardize())]
    channels = data.shape[0]
    for block, out in enumerate((WIDTH, 2 * WIDTH, 4 * WIDTH), start=1):
        for half in ("a", "b"):
            layers += [
                (f"conv{block}{half}", nn.Conv2d(channels, out, 3, padding=1, bias=False)),
                (f"bn{block}{half}", nn.BatchNorm2d(out)),
                (f"act{block}{half}", activation("relu")),
            ]
            channels = out
        layers.append((f"pool{block}", nn.MaxPool2d(2)))
    features = channels * (SIDE // 8) ** 2
    return named(*layers, ("flatten", nn.Flatten()), ("fc", nn.Linear(features, data.classes)))


def _varied(pictures: Tensor, source: torch.Generator) -> Tensor:
    """(B, C, H, W) mirrored, turned (radians), zoomed, shifted (in half sides) and noisy, each by its own draw."""
    count = len(pictures)

    def between(most: float, *shape: int) -> Tensor:
        return most * (2 * torch.rand(count, *shape, generator=source) - 1)

    turn, zoom = between(_TURN), 1 + between(_ZOOM)
    mirror = torch.where(torch.rand(count, generator=source) < 0.5, -1.0, 1.0)
    rows = [mirror * zoom * turn.cos(), -zoom * turn.sin(), mirror * zoom * turn.sin(), zoom * turn.cos()]
    matrix = torch.stack(rows, 1).reshape(count, 2, 2)
    grid = F.affine_grid(torch.cat([matrix, between(_SHIFT, 2, 1)], 2), list(pictures.shape), align_corners=False)
    moved = F.grid_sample(pictures, grid, padding_mode="reflection", align_corners=False)
    noise = _NOISE * torch.rand(count, 1, 1, 1, generator=source) * torch.randn(pictures.shape, generator=source)
    return moved + noise


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
