"""A client that shares given tensors, and small setups with defended clients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leakgauge.attacks.linear import Linear
from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.matching.first_layer import FirstLayer
from leakgauge.matching.problem import Matching, matching_of
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.types import (
    Attack,
    Batch,
    Client,
    DataSpec,
    Defense,
    Known,
    Observation,
    Reconstruction,
    SharedUpdate,
    threat_model,
)

NOTHING = Batch(torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.long))


@dataclass(frozen=True)
class Scene:
    """What defended clients kept secret beside what is seen of them."""

    data: DataSpec
    batch: Batch
    seen: Observation
    seeds: tuple[int, ...]

    def posed(self, attack: Attack, *known: Known) -> Any:
        """The problem of `attack`, rewritten by the defenses that are known, in the order in which they act."""
        return self._rewritten(attack.problem(self.seen, self.seeds), known)

    def matching(self, *known: Known, labels: bool = True, **fields: Any) -> Matching:
        """A bare matching problem without a prior, rewritten likewise."""
        fields = {"distance": "l2", "prior": lambda _, inputs, __: inputs.new_zeros(len(inputs))} | fields
        return self._rewritten(matching_of(self.seen, self.batch.labels if labels else None, **fields), known)

    def psnr(self, attack: Attack, known: Sequence[Known] = ()) -> Tensor:
        """(T,) of the attack's pictures."""
        found: Reconstruction = attack(self.seen, self.seeds, known=known)
        return score(self.batch, found, self.data).records["psnr"].mean(1)

    def _rewritten(self, problem: Any, known: Sequence[Known]) -> Any:
        for each in reversed(known):
            problem = each.defense.informs(problem, self.seen, each.way)
        return problem


@pytest.fixture
def scene() -> Callable[..., Scene]:
    """scene(*defenses, model=..., samples=..., ...): clients behind these defenses, and what is seen of them."""

    def make(
        *defenses: Defense,
        model: str | nn.Module = "lenet-dlg:filters=4",
        data: str = "digits",
        samples: int = 1,
        seeds: Sequence[int] = (5, 6),
        local: Client | None = None,
        told: str = "honest-but-curious",
        dtype: torch.dtype = torch.float32,
        public: bool = False,
    ) -> Scene:
        source, local = load(data), local or Client()
        net = load_model(model, source.spec, 0) if isinstance(model, str) else model
        net = prepared(net, *defenses).to(dtype)
        drawn = draw_victims(source, len(seeds), samples, 0)
        batch = Batch(drawn.inputs.to(dtype), drawn.labels)
        update = chain(client_step(local), *defenses)(net, batch, seeds)
        facts = facts_about(
            net, batch, source.spec, local, public_batch(load(data, "train"), 64, 0) if public else None
        )
        return Scene(source.spec, batch, observe(net, update, threat_model(told), facts), tuple(seeds))

    return make


@pytest.fixture
def first_layer(scene: Callable[..., Scene]) -> Callable[[Defense], FirstLayer]:
    """first_layer(defense) -> the problem of `linear` by an attacker who knows the defense."""

    def posed(defense: Defense) -> FirstLayer:
        found: FirstLayer = scene(defense, model="mlp:hidden=16").posed(Linear(), Known(defense))
        return found

    return posed


@pytest.fixture
def defended() -> Callable[..., dict[str, Tensor]]:
    """defended(defense, {name: (T, ...)}, seeds) -> what is shared instead."""

    def run(defense: Defense, tensors: Mapping[str, Tensor], seeds: range | tuple = (0,)) -> dict[str, Tensor]:
        step = defense.wrap(lambda *_: SharedUpdate("gradient", dict(tensors)))
        return dict(step(nn.Identity(), NOTHING, seeds).tensors)

    return run


@pytest.fixture
def attacked(scene: Callable[..., Scene]) -> Callable[..., Tensor]:
    """attacked(defense, attack, model, known) -> PSNR (T,) of the attack on the defended update of digits."""

    def run(defense: Defense, attack: Attack, model: str, known: Sequence[Known] = (), trials: int = 3) -> Tensor:
        return scene(defense, model=model, seeds=range(trials)).psnr(attack, known)

    return run
