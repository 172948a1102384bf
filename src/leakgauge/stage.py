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
from leakgauge.errors import BadInput
from leakgauge.fl.chain import chain, client_step, prepared
from leakgauge.fl.partition import shares
from leakgauge.metrics import Metric
from leakgauge.metrics.scoring import DEFAULT
from leakgauge.models import load_model
from leakgauge.store import content_of, key_of
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
        return step(prepared(model, *defenses), self.batch, self.scenario.seeds)


def set_stage(scenario: Scenario, data_root: Path | None, device: str) -> Stage:
    """Load what the scenario names; every mistake in it is found here, before anything runs."""
    where = pick_device(device)
    told = threat_model(scenario.threat_model)
    victims = load(scenario.data, "test", data_root)
    model = load_model(scenario.model, victims.spec, scenario.seed, scenario.weights).to(where)
    pool = shares(victims.labels, scenario.partition, scenario.seed)
    batch = draw_victims(victims, scenario.trials, scenario.batch_size, scenario.seed, scenario.batch_labels, pool)
    metrics = (*DEFAULT, *(m for name in scenario.metrics if (m := _metric(name, victims.spec)) not in DEFAULT))
    try:
        public: Batch | None = _to(
            public_batch(load(scenario.data, "train", data_root), PUBLIC_SAMPLES, scenario.seed), where
        )
    except BadInput:
        public = None  # own data too small to share any: attacks and floors that need public data say so
    depends = dataclasses.replace(scenario, attacks=(), defenses=()).as_dict()
    chains = [part for chain_text in scenario.defenses for part in chain_text.split("+")]
    named = (scenario.model, scenario.data, scenario.weights, *scenario.attacks, *chains)
    contents = sorted({content_of(spec) for spec in named})
    key = key_of(scenario=depends, contents=contents, version=leakgauge.__version__, device=where.type)
    return Stage(scenario, victims.spec, model, _to(batch, where), public, told, metrics, key)


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
    folder = Path(__file__).parent
    git = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    gpu = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return {
        "leakgauge": leakgauge.__version__,
        "commit": git.stdout.strip() if git.returncode == 0 else "installed package",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": f"{device.type}{gpu}",
        "threads": str(torch.get_num_threads()),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _metric(name: str, data: DataSpec) -> Metric:
    """A metric by name, tried once, so that missing weights are found before anything runs."""
    metric: Metric = catalog.get("metrics", name)
    blank = torch.zeros(1, *data.shape)
    metric(blank, blank, data)
    return metric


def _to(batch: Batch, device: torch.device) -> Batch:
    return Batch(batch.inputs.to(device), batch.labels.to(device))
