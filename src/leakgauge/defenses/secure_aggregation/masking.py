"""Secure aggregation in whole numbers: a client's words are uniform by themselves, and their sum is that of the values.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, section 4.0.1: every
pair of clients agrees on a seed and expands it to a mask; one adds it, the other subtracts it, modulo 2^bits. Values
are first rounded to multiples of a step so large that the sum of all clients cannot wrap around.

Not here: the key agreement (pairs take their seeds from their numbers, since nobody but a test looks at one message),
and all that lets a sum be finished when clients drop out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.engine.randomness import generator


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
    for one in range(len(words)):
        for other in range(one + 1, len(words)):
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
