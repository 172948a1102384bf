"""A client that shares given tensors, and a small attacked set-up on digits."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.types import Attack, Batch, Defense, LocalTraining, SharedUpdate, threat_model

NOTHING = Batch(torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.long))


@pytest.fixture
def defended() -> Callable[..., dict[str, Tensor]]:
    """defended(defense, {name: (T, ...)}, seeds) -> what is shared instead."""

    def run(defense: Defense, tensors: Mapping[str, Tensor], seeds: range | tuple = (0,)) -> dict[str, Tensor]:
        step = defense.wrap(lambda *_: SharedUpdate("gradient", dict(tensors)))
        return dict(step(nn.Identity(), NOTHING, seeds).tensors)

    return run


@pytest.fixture
def attacked() -> Callable[..., Tensor]:
    """attacked(defense, attack, model) -> PSNR (T,) of the attack on the defended update of digits."""

    def run(defense: Defense, attack: Attack, model: str, trials: int = 3) -> Tensor:
        digits = load("digits")
        net = load_model(model, digits.spec, 0)
        batch = draw_victims(digits, trials, 1, 0)
        update = chain(client_step(LocalTraining()), defense)(net, batch, range(trials))
        facts = facts_about(net, batch, digits.spec, LocalTraining(), None)
        result = attack(observe(net, update, threat_model("honest-but-curious"), facts), range(trials))
        return score(batch, result, digits.spec).records["psnr"].mean(1)

    return run
