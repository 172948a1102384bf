"""Private samples, a client step, and what an attacker sees of it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.metrics.scoring import Scores, score
from leakgauge.models import load_model
from leakgauge.types import Batch, DataSpec, LocalTraining, Observation, Reconstruction, SharedUpdate, threat_model


@dataclass(frozen=True)
class Scene:
    """One attacked set-up: the secret beside what is seen of it."""

    data: DataSpec
    batch: Batch
    seen: Observation

    def score(self, result: Reconstruction) -> Scores:
        return score(self.batch, result, self.data)

    def psnr(self, result: Reconstruction) -> torch.Tensor:
        return self.score(result).records["psnr"].mean(1)


@pytest.fixture(scope="session")
def data_sets():
    return {name: (load(name), load(name, "train")) for name in ("digits", "breast-cancer")}


@pytest.fixture
def scene(data_sets) -> Callable[..., Scene]:
    """scene(model, data=..., trials=..., samples=..., ...): a client step, observed."""

    def make(
        model: str | nn.Module = "mlp:hidden=16",
        *,
        data: str = "digits",
        trials: int = 2,
        samples: int = 1,
        local: LocalTraining | None = None,
        defenses: tuple = (),
        told: str = "honest-but-curious",
        dtype: torch.dtype = torch.float32,
        change: Callable[[SharedUpdate], SharedUpdate] = lambda update: update,
        seed: int = 0,
    ) -> Scene:
        victims, public = data_sets[data]
        local = local or LocalTraining()
        net = load_model(model, victims.spec, seed) if isinstance(model, str) else model
        net = net.to(dtype)
        drawn = draw_victims(victims, trials, samples, seed)
        batch = Batch(drawn.inputs.to(dtype), drawn.labels)
        update = change(chain(client_step(local), *defenses)(net, batch, tuple(range(trials))))
        facts = facts_about(net, batch, victims.spec, local, public_batch(public, 64, seed))
        return Scene(victims.spec, batch, observe(net, update, threat_model(told), facts))

    return make
