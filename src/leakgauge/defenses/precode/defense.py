"""PRECODE: a variational bottleneck in front of the last linear layer, whose noise only the client knows.

Scheliga, Maeder and Seeland, "PRECODE - A Generic Model Extension to Prevent Deep Gradient Leakage", WACV 2022. The
features are encoded as mu and std, z = mu + std * noise is drawn and decoded, and `beta` times the divergence of
N(mu, std^2) from N(0, 1), in bits, joins the client's loss. Whoever does not know the noise computes other gradients.

Where we depart. One noise vector is drawn per client and update and serves all its samples and local steps: exact for
one sample and one step, the easier case for the attacker otherwise. An attacker who ignores the noise sets it to zero,
its mean; published attacks draw a new one at every step, which fails more. Theirs leave the divergence out of their own
loss; here it is part of the model that everyone has, so ours have it.

How to beat it: every layer before the bottleneck sends exact gradients. A first linear layer gives its input away as
ever. So do the bottleneck's own two linear layers: for one sample their gradients show the features, hence mu and std,
and z, hence the noise. Or the noise is searched for together with the image, also for a batch. Either way the gradients
of the bottleneck and of the layer behind it are left out of the comparison.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.defenses._before_last import with_last_linear, with_own_draws
from leakgauge.defenses.precode.noise import READ, SEARCH, ZERO, behind_the_bottleneck, with_noise
from leakgauge.engine.randomness import normal
from leakgauge.errors import BadInput
from leakgauge.matching.first_layer import LEAST_SQUARES, SOLVED, FirstLayer, PeeledLayer
from leakgauge.matching.problem import Matching, inside
from leakgauge.matching.updates import observed_gradient
from leakgauge.models.layers import VariationalBottleneck, seeded
from leakgauge.settings import setting
from leakgauge.types import Attack, Defense, Observation, Step


@dataclass(frozen=True)
class Precode(Defense):
    """Example: `--defense precode:width=256`"""

    name: ClassVar[str] = "precode"
    summary: ClassVar[str] = "put a variational bottleneck in front of the last linear layer"
    paper: ClassVar[str] = "Scheliga et al. 2022 (PRECODE)"

    width: int = setting(256, "numbers in the code, and of the noise", low=1)
    beta: float = setting(1e-3, "weight of the divergence in the client's loss, at least 0; the noise stays at 0")
    seed: int = setting(0, "of the bottleneck's first weights", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta < 0:  # `low` would say that 0 turns the defense off, and it does not
            raise BadInput("precode: beta", allowed="at least 0", got=self.beta, do="choose a value in that range")

    def prepare(self, model: nn.Module) -> nn.Module:
        """`model` with the bottleneck, its noise zero; the last layer's name gains `.linear`."""

        def extended(linear: nn.Linear) -> nn.Module:
            with seeded(self.seed):
                bottleneck = VariationalBottleneck(linear.in_features, self.width, self.beta)
            layers = OrderedDict([("bottleneck", bottleneck.to(linear.weight)), ("linear", linear)])
            return nn.Sequential(layers).train(linear.training)

        return with_last_linear(model, self.name, extended)

    def wrap(self, step: Step) -> Step:
        return with_own_draws(
            step, VariationalBottleneck, "noise", lambda seeds, shape: normal(seeds, self.name, shape)
        )

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """The noise is read off the bottleneck's own gradient, or searched for with the inputs."""
        return (READ, SEARCH) if issubclass(attack.kind, Matching) else super().ways(attack)

    def weaker_ways(self, attack: Attack) -> tuple[str, ...]:
        return (ZERO,) if issubclass(attack.kind, Matching) else ()

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        """The bottleneck's own gradients are large and hard to match, and the layers before it say enough."""
        found = with_noise(problem, observed_gradient(observation), way)
        return found.without(inside(behind_the_bottleneck(found.model), found.observed))

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return problem.replace(combine=LEAST_SQUARES)  # the first layer's ratio never saw the noise

    def informs_peeled(self, problem: PeeledLayer, observation: Observation, way: str) -> PeeledLayer:  # noqa: ARG002
        return problem.replace(coefficients=SOLVED)  # nor did what a sample leaves in the first layer
