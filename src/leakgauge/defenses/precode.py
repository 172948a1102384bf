"""PRECODE: a variational bottleneck in front of the last linear layer, whose noise only the client knows.

Scheliga, Maeder and Seeland, "PRECODE - A Generic Model Extension to Prevent Deep Gradient Leakage", WACV 2022. The
features are encoded as mu and std, z = mu + std * noise is drawn and decoded, and `beta` times the divergence of
N(mu, std^2) from N(0, 1), in bits, joins the client's loss. An attacker without the noise computes other gradients.

Where we depart. One noise vector is drawn per client and update and serves all its samples and local steps: exact for
one sample and one step, the easier case for the attacker otherwise. An attacker who ignores the noise sets it to zero,
its mean; published attacks draw a new one at every step, which fails more. They leave the divergence out of their own
loss; here it is part of the public model, so ours have it.

How to beat it: every layer before the bottleneck sends exact gradients. For one sample, row i of a linear layer's
weight gradient is (dL/dy_i) x and its bias entry dL/dy_i: that shows x. So a first linear layer shows the picture, and
the bottleneck's own two show the features, hence mu and std, and z, hence the noise. Or the noise is searched for
together with the image, also for a batch. Either way the gradients of the bottleneck and of the layer behind it are
left out of the comparison.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.defenses._families import SolvesPeeled, with_last_linear, with_own_draws
from leakgauge.engine.randomness import normal
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.problem import Matching, inside
from leakgauge.matching.updates import observed_gradient
from leakgauge.models.layers import VariationalBottleneck, seeded
from leakgauge.models.structure import last_listed_linear
from leakgauge.settings import setting
from leakgauge.types import Attack, Observation, Step

READ, SEARCH, ZERO = ("read off the update", "searched for", "taken as zero")
_TINY = 1e-30


@dataclass(frozen=True)
class Precode(SolvesPeeled):
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


def with_noise(problem: Matching, gradient: Mapping[str, Tensor], way: str) -> Matching:
    """The same problem with the client's noise as far as it is known, or as part of what is searched for.

    Of several samples the gradient shows mixtures, from which nothing is read: their noise is searched for instead.
    """
    found = {name: m for name, m in problem.model.named_modules() if isinstance(m, VariationalBottleneck)}
    if not found:
        raise NotApplicable("this defense puts a variational bottleneck into the model, and this one has none")
    if way == ZERO:
        return problem
    if way == READ and problem.shape[0] == 1:
        noise = {_in(name, "noise"): visible_noise(name, layer, gradient) for name, layer in found.items()}
        return problem.replace(masks={**problem.masks, **noise})
    shapes = {_in(name, "noise"): tuple(layer.noise.shape) for name, layer in found.items()}
    return problem.replace(hidden=shapes)


def visible_noise(name: str, layer: VariationalBottleneck, gradient: Mapping[str, Tensor]) -> Tensor:
    """(T, K): what one sample's gradient shows of the noise."""
    features = _entered(_in(name, "statistics"), gradient)
    mu, raw = layer.statistics(features).detach().chunk(2, -1)
    code = _entered(_in(name, "decode"), gradient)
    noise: Tensor = (code - mu) / F.softplus(raw)
    return noise


def _entered(name: str, gradient: Mapping[str, Tensor]) -> Tensor:
    """(T, in): the one input of a linear layer, fitted to all rows of its gradient."""
    if f"{name}.weight" not in gradient or f"{name}.bias" not in gradient:
        raise NotApplicable(f"the noise is read off the gradients of {name!r}, which are frozen or not shared")
    weight, bias = gradient[f"{name}.weight"], gradient[f"{name}.bias"]  # (T, out, in), (T, out)
    return (weight * bias[..., None]).sum(1) / (bias**2).sum(1, keepdim=True).clamp_min(_TINY)


def _in(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def behind_the_bottleneck(model: nn.Module) -> list[str]:
    """Names of the bottleneck's layers and of the linear layer behind it."""
    found = [name for name, module in model.named_modules() if isinstance(module, VariationalBottleneck)]
    last = last_listed_linear(model)
    return found if last is None else [*found, last]
