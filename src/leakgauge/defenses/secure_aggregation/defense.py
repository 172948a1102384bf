"""Secure aggregation: the server learns the sum of m clients' updates and of no single one.

Bonawitz et al. 2017. Each client rounds its update to whole numbers and adds a mask for every other client of the sum;
the masks cancel (see `leakgauge.defenses.secure_aggregation.masking`). Here m clients with as many samples each train
apart, with the other defenses of the chain acting at each of them, and what is attacked is their mean.

Where we depart. Nobody drops out and nobody lies: what the protocol adds for that (shares of the secrets, a second
mask, signatures) is not played, and its bytes are not counted. Clients weigh the same.

How to beat it: nothing is demasked. But for FedSGD the mean of m clients with N samples each is the gradient of one
batch of m x N, and every attack on a batch is an attack on it. For FedAvg the informed attacker knows that the samples
belong to m clients, and replays each one's steps by itself. A server that may change the model gains as it does against
any large batch: what `imprint` or `trap-weights` read off a batch, they read off a sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.client.fedavg import local_steps
from leakgauge.defenses.secure_aggregation.masking import masked_mean
from leakgauge.errors import NotApplicable
from leakgauge.matching.first_layer import LEAST_SQUARES, FirstLayer
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Defense, Fact, LocalTraining, Observation, SharedUpdate

_KEY_BYTES = 32  # of a public key, from which a pair of clients has its seed
_STATISTICS = (2.0**20, 64)  # limit and bits for running statistics, which may be larger than any gradient


@dataclass(frozen=True)
class SecureAggregation(Defense):
    """Example: `--defense secure-aggregation:clients=8`"""

    name: ClassVar[str] = "secure-aggregation"
    summary: ClassVar[str] = "mask every update so that the server learns only the sum over several clients"
    paper: ClassVar[str] = "Bonawitz et al. 2017"

    clients: int = setting(4, "clients in the sum that is attacked; in training those of a round are", low=2)
    bits: int = setting(32, "bits of a word, 16 to 64", low=16, high=64)
    limit: float = setting(16.0, "largest entry of an update that fits; a smaller one rounds finer", above=0)

    @property
    def in_sum(self) -> int:
        return self.clients

    def aggregate(self, updates: SharedUpdate) -> SharedUpdate:
        """The mean, by way of masked words."""
        for name, tensor in updates.tensors.items():
            self._refuse_too_large(name, tensor)
        buffers = {
            name: masked_mean(b.double(), *_STATISTICS, f"buffer/{name}").to(b.dtype)
            for name, b in updates.buffers.items()
        }
        means = updates.map(lambda name, t: masked_mean(t, self.limit, self.bits, name))
        return dataclasses.replace(means, buffers=buffers)

    def _refuse_too_large(self, name: str, tensor: Tensor) -> None:
        largest = float(tensor.abs().max()) if tensor.numel() else 0.0
        if not largest <= self.limit:  # also NaN
            raise NotApplicable(
                f"secure-aggregation has words for entries up to limit={self.limit:g}, and a client's {name!r} has one "
                f"of {largest:.3g}; raise limit, or clip the update first"
            )

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return with_clients(problem, observation, self.clients)

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return problem.replace(combine=LEAST_SQUARES)  # all that there is to fit

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:  # noqa: ARG002
        """A word for every entry, also for those that an earlier defense left out, and the client's public key."""
        return sum(-(-self.bits * shape.numel() // 8) for shape in tensors.values()) + _KEY_BYTES

    def bytes_down(self, tensors: Mapping[str, torch.Size], number_bytes: int, clients: int) -> int:
        """The model, and the public key of every other client."""
        return super().bytes_down(tensors, number_bytes, clients) + _KEY_BYTES * (clients - 1)


def with_clients(problem: Matching, observation: Observation, clients: int) -> Matching:
    """The same problem with each client's training simulated by itself.

    A weight difference counts the steps of one client. Who has which sample is a guess where they take steps of
    their own: the order in which the samples are searched for.
    """
    samples = problem.shape[0]
    if samples % clients:
        raise NotApplicable(f"clients={clients} needs as many samples of each, not {samples} in all; leave it out")
    observed = problem.observed
    if problem.unrolled is None and observation.update.kind == "weight_delta":
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        factor = local_steps(samples, local) / local_steps(samples // clients, local)
        observed = {name: factor * tensor for name, tensor in observed.items()}
    return problem.replace(observed=observed, clients=clients)
