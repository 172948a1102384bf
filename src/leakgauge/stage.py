"""Everything a scenario names, loaded and checked before anything runs."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import leakgauge
from leakgauge import catalog
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.fl.chain import chain, client_step, prepared
from leakgauge.fl.partition import shares
from leakgauge.metrics import Metric
from leakgauge.metrics.scoring import DEFAULT
from leakgauge.models import load_model
from leakgauge.plan import split_chain
from leakgauge.store import content_of, key_of, tensors_of
from leakgauge.types import Batch, DataSpec, Defense, Scenario, SharedUpdate, ThreatModel, threat_model

PUBLIC_SAMPLES = 512


@dataclass(frozen=True)
class Stage:
    """Everything a scenario names, loaded: built once, read by every cell."""

    scenario: Scenario
    data: DataSpec
    model: nn.Module
    batch: Batch
    public: Batch | None
    threat_model: ThreatModel
    metrics: tuple[Metric, ...]
    key: str  # of all that a cell depends on besides its attack and defence

    def update(self, defenses: Sequence[Defense], model: nn.Module) -> SharedUpdate:
        step = chain(client_step(self.scenario.local), *defenses)
        try:
            return step(prepared(model, *defenses), self.batch, self.scenario.seeds)
        except ValueError as error:  # torch's own: BatchNorm in train mode has nothing to take statistics of
            if isinstance(error, LeakgaugeError) or "more than 1 value per channel" not in str(error):
                raise
            raise BadInput(
                "batchnorm=train",
                allowed="used with more than one value per channel",
                got="one",
                do="raise --batch-size",
            ) from error


def set_stage(scenario: Scenario, data_root: Path | None, device: str) -> Stage:
    """Load what the scenario names; every mistake in it is found here, before anything runs."""
    where = pick_device(device)
    set_precision("float32")
    told = threat_model(scenario.threat_model)
    victims = load(scenario.data, "test", data_root)
    model = load_model(scenario.model, victims.spec, scenario.seed, scenario.weights).to(where)
    pool = shares(victims.labels, scenario.partition, scenario.seed)
    batch = draw_victims(victims, scenario.trials, scenario.batch_size, scenario.seed, scenario.batch_labels, pool)
    metrics = (*DEFAULT, *(m for name in scenario.metrics if (m := _metric(name, victims.spec)) not in DEFAULT))
    try:
        public: Batch | None = to_device(
            public_batch(load(scenario.data, "train", data_root), PUBLIC_SAMPLES, scenario.seed), where
        )
    except BadInput:
        public = None  # own data too small to share any: attacks and floors that need public data say so
    if catalog.is_own(scenario.model):
        _check_trainable(model, victims.spec, where)
    depends = dataclasses.replace(scenario, attacks=(), defenses=(), variants="both", gate=None).as_dict()
    own = [*scenario.attacks, *(part for defense in scenario.defenses for part in split_chain(defense))]
    contents = [
        repr(model),
        *sorted({content_of(spec) for spec in own} - {""}),
        tensors_of(model.state_dict().values()),
    ]
    contents += [tensors_of((b.inputs, b.labels)) for b in (batch, public) if b is not None]
    key = key_of(scenario=depends, contents=contents, version=leakgauge.__version__, device=where.type)
    return Stage(scenario, victims.spec, model, to_device(batch, where), public, told, metrics, key)


def pick_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:1`; refused if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        ok = device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < torch.cuda.device_count())
    except RuntimeError:
        ok = False
    if not ok:
        raise BadInput(
            "device", allowed="auto, cpu or a CUDA device of this machine", got=repr(name), do="use --device auto"
        )
    return device


def environment(device: torch.device) -> dict[str, str]:
    """Where a result was measured."""
    gpu = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return {
        "leakgauge": leakgauge.__version__,
        "commit": _commit() or "installed package",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": f"{device.type}{gpu}",
        "threads": str(torch.get_num_threads()),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _check_trainable(model: nn.Module, data: DataSpec, device: torch.device) -> None:
    """Can the gradients of several clients be taken side by side through the user's own model?"""
    blank = torch.zeros(2, 1, *data.shape, device=device)
    try:
        trial_gradients(working_model(model, "eval"), blank, torch.zeros(2, 1, dtype=torch.long, device=device))
    except RuntimeError as error:
        raise BadInput(
            "own model",
            allowed="a forward pass without branches on data or in-place tricks, so that clients run side by side",
            got=str(error).partition("\n")[0],
            do="replace 'if tensor' by torch.where, .item() and in-place updates by plain operations",
        ) from error


def _commit() -> str | None:
    """The commit of this source tree; None if it is not one (another repository around us does not count)."""
    here = Path(__file__)
    try:
        for arguments in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "--short", "HEAD"]):
            git = subprocess.run(["git", *arguments], cwd=here.parent, capture_output=True, text=True, check=True)
        return git.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _metric(name: str, data: DataSpec) -> Metric:
    """A metric by name, tried once, so that missing weights are found before anything runs."""
    metric: Metric = catalog.get("metrics", name)
    blank = torch.zeros(1, *data.shape)
    metric(blank, blank, data)
    return metric


def to_device(batch: Batch, device: torch.device) -> Batch:
    return Batch(batch.inputs.to(device), batch.labels.to(device))
