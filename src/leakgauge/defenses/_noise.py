"""What all defenses that add noise tell an attacker."""

from __future__ import annotations

from leakgauge.matching.first_layer import LEAST_SQUARES, FirstLayer
from leakgauge.matching.noise import Noise
from leakgauge.matching.problem import Latent, Likely, Matching
from leakgauge.types import Attack, Defense, Observation, TamperingServer

_PRIOR_SHARPNESS = 10.0  # neighbouring pixels of a picture differ by about 1/10: the scale of its smoothness prior
_STRONG_VARIATION = 0.01  # for attacks that match directions; a hundred times their usual weight


def against_noise(problem: Matching, noise: Noise | None) -> Matching:
    """The problem of an attacker who knows of noise.

    Where the distance may be the noise's likelihood, the search weighs it against a smoothness prior and stops where
    the noise alone explains the rest. A cosine has no likelihood: it gets more smoothness, and so does every search
    against noise of unknown size (None).
    """
    if noise is not None and isinstance(problem, Likely):
        weight = _PRIOR_SHARPNESS * (2 * noise.scale**2 if noise.distance == "l2" else noise.scale)
        return problem.replace(noise=noise).with_variation(weight)
    return problem.smoother(_STRONG_VARIATION)


def weighs(attack: Attack) -> bool:
    """May the distance of `attack` be the likelihood of known noise?"""
    return issubclass(attack.kind, Likely)


def smooths(attack: Attack) -> bool:
    """Is there a weight of total variation to be raised, and nothing better to be done with the noise?"""
    return issubclass(attack.kind, Matching) and not issubclass(attack.kind, (Likely, Latent))


class KnownNoise(Defense):
    """What a defense that adds noise to all that is sent tells an attacker."""

    @property
    def noise(self) -> Noise | None:
        """Its size on what is sent; None where it has no one size."""
        raise NotImplementedError  # abstract

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """A search without a prior on pictures has nothing to weigh against the noise."""
        return () if issubclass(attack.kind, Latent) else super().ways(attack)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return problem if isinstance(problem, Latent) else against_noise(problem, self.noise)

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return problem.replace(combine=LEAST_SQUARES)  # the noise averages out over rows

    def informs_server(self, server: TamperingServer) -> TamperingServer:
        """Larger gradients drown the noise, if its size does not grow with them."""
        return server if self.idle or self.noise is None else server.louder() or server
