"""Secure aggregation: the server learns the sum of m clients' updates and of no single one.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, section 4.0.1. Each
client rounds its update to whole numbers, in steps so large that the sum cannot wrap around. Every pair of clients
expands a common seed to a mask; one adds it, the other subtracts it, modulo 2^bits: a client's words are uniform by
themselves, and their sum is that of the values. Here m clients with as many samples each train apart, with the other
defenses of the chain acting at each of them, and what is attacked is their mean.

Where we depart. No client drops out or lies: what the protocol adds for that (shares of the secrets, a second mask,
signatures) is not played, and its bytes are not counted. Pairs take their seeds from their numbers instead of a key
agreement. Clients weigh the same.

How to beat it: no mask is removed. For FedSGD the mean of m clients with N samples each is the gradient of one batch of
m x N, and every attack on a batch is an attack on it. For FedAvg the informed attacker replays each client's steps by
itself. A server that may change the model reads from a sum what it reads from a batch (`imprint`, `trap-weights`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.client.gradient_behind import gradient_scale
from leakgauge.defenses._families import FitsRows
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.matching.compression import Signs
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Client, Fact, Observation, SharedUpdate

_KEY_BYTES = 32  # of a public key, from which a pair of clients has its seed
_STATISTICS = (2.0**20, 64)  # limit and bits for running statistics, which may be larger than any gradient


@dataclass(frozen=True)
class SecureAggregation(FitsRows):
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
            largest = float(tensor.abs().max()) if tensor.numel() else 0.0
            if not largest <= self.limit:  # also NaN
                raise NotApplicable(
                    f"secure-aggregation has words for entries up to limit={self.limit:g}, and a client's {name!r} has "
                    f"one of {largest:.3g}; raise limit, or clip the update first"
                )
        wide = {name: masked_mean(b.double(), *_STATISTICS, f"buffer/{name}") for name, b in updates.buffers.items()}
        buffers = {name: mean.to(updates.buffers[name].dtype) for name, mean in wide.items()}
        means = updates.map(lambda name, t: masked_mean(t, self.limit, self.bits, name))
        return dataclasses.replace(means, buffers=buffers)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return with_clients(problem, observation, self.clients)

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
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    if problem.unrolled is not None or observation.update.kind == "gradient":
        return problem.replace(clients=clients)
    if local.adaptive:  # a mean of signs: sizes cannot be read off it
        return problem.replace(clients=clients, compression=problem.compression and Signs())
    factor = gradient_scale(local, samples) / gradient_scale(local, samples // clients)
    observed = {name: factor * tensor for name, tensor in problem.observed.items()}
    return problem.replace(observed=observed, clients=clients)


def step_of(limit: float, bits: int, clients: int) -> float:
    """Distance between two values that can be told apart, for entries up to `limit`; one bit is left free."""
    return limit / float(2 ** (bits - 2) // clients)


def to_words(values: Tensor, step: float, bits: int) -> Tensor:
    """Every value as the nearest multiple of `step`, counted modulo 2^bits, in int64."""
    return reduced((values.double() / step).round().long(), bits)


def from_words(words: Tensor, step: float, bits: int) -> Tensor:
    """The signed numbers behind words, times `step`, in double precision."""
    if bits < 64:
        words = torch.where(words >= 2 ** (bits - 1), words - 2**bits, words)
    return words.double() * step


def reduced(words: Tensor, bits: int) -> Tensor:
    """The low `bits` of int64, whose own arithmetic is modulo 2^64."""
    return words if bits == 64 else words & (2**bits - 1)


def masked(words: Tensor, bits: int, role: str) -> Tensor:
    """What the clients (m, ...) send: their words and a mask for each other client; in the sum the masks cancel."""
    messages = words.clone()
    for one, other in itertools.combinations(range(len(words)), 2):
        mask = _uniform(words[0].shape, generator(0, f"mask/{role}/{one}/{other}")).to(words.device)
        messages[one] += mask
        messages[other] -= mask
    return reduced(messages, bits)


def masked_mean(values: Tensor, limit: float, bits: int, role: str) -> Tensor:
    """The mean over clients (m, ...) -> (1, ...), as a server computes it that sees masked words alone."""
    step = step_of(limit, bits, len(values))
    messages = masked(to_words(values, step, bits), bits, role)
    whole = from_words(reduced(messages.sum(0, keepdim=True), bits), step, bits)
    return (whole / len(values)).to(values.dtype)


def _uniform(shape: torch.Size, source: torch.Generator) -> Tensor:
    """Any of the 2^64 words, each as likely: a high and a low half, since no single draw reaches all."""
    high = torch.randint(-(2**31), 2**31, shape, generator=source)
    return (high << 32) + torch.randint(0, 2**32, shape, generator=source)
