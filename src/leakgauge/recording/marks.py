"""Without the batch: does an update bear the marks that its declared defense leaves on any update?

Noise shows in the last layer of a cross-entropy, whose columns add up to zero without it; pruning and masks leave
zeros, compression few sizes of entries. What the declared defense leaves is seen on made-up batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from leakgauge.client.chain import client_step
from leakgauge.client.summed import behind_one, seen_step
from leakgauge.engine.randomness import derived_seed, generator
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.matching.last_layer import clues_of
from leakgauge.recording.sanity import noise_share
from leakgauge.types import Batch, DataSpec, Defense, Fact, Observation, SharedUpdate

_MADE_UP = 4  # batches
_QUIETER = 100.0  # times less noise than the least of them
_LEAST = 1e-6  # of an entry: rounding
_FEWER_ZEROS = 0.2  # of all entries
_MORE_SIZES = 8.0  # times the most of them
_COUNTED = 20_000  # entries of the largest tensor


@dataclass(frozen=True)
class _Marks:
    noise: float | None  # in the last layer, as a share of its entries; None where it cannot be read
    zeros: float  # share of all entries
    sizes: int  # different ones in the largest tensor


def refuse_unmarked(observation: Observation, defenses: Sequence[Defense], declared: str) -> None:
    """For a saved update: raise BadInput where it cannot have gone through the defenses. `declared` names them."""
    if not defenses or behind_one(defenses) > 1:
        return
    try:
        expected, plain = ([_marks(o) for o in _made_up(observation, some)] for some in (defenses, ()))
    except (LeakgaugeError, RuntimeError, ValueError):  # what cannot be simulated leaves no expectation
        return
    for trial in range(observation.trials):
        if (how := _contradiction(_marks(observation.take([trial])), expected, plain)) is not None:
            what = "update" + (f" of client {trial}" if observation.trials > 1 else "")
            do = "the declared defense was not applied: check the client, or leave it out of --defenses"
            raise BadInput(what, allowed=f"one that went through --defenses {declared}", got=how, do=do)


def _contradiction(seen: _Marks, expected: Sequence[_Marks], plain: Sequence[_Marks]) -> str | None:
    noise = [m.noise for m in expected if m.noise is not None]
    if seen.noise is not None and noise and min(noise) > _QUIETER * max(seen.noise, _LEAST):
        return f"one with noise of {seen.noise:.1g} of an entry in its last layer, where {min(noise):.1g} should be"
    # Dead units leave zeros too, in other batches others: only what the defense turns to zero of the rest is expected.
    zeros = min((m.zeros - p.zeros) / max(1 - p.zeros, 1e-9) for m, p in zip(expected, plain, strict=True))
    if zeros - seen.zeros > _FEWER_ZEROS:
        return f"one in which {seen.zeros:.0%} of the entries are zero, where {zeros:.0%} should be"
    sizes = max(m.sizes for m in expected)
    if min(seen.sizes, *(p.sizes for p in plain)) > _MORE_SIZES * sizes:  # dead units alone leave few sizes too
        return f"one with {seen.sizes:,} different sizes of entries, where {sizes:,} should be"
    return None


def _made_up(observation: Observation, defenses: Sequence[Defense]) -> list[Observation]:
    """What the same client would share of noise with labels drawn by chance."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    g, like = generator(0, "made-up batches"), next(observation.model.parameters())
    inputs = torch.rand((_MADE_UP, samples, *data.shape), generator=g).to(like)
    labels = torch.randint(data.classes, (_MADE_UP, samples), generator=g).to(like.device)
    step = seen_step(client_step(observation.fact(Fact.LOCAL_TRAINING)), *defenses)
    shared = step(observation.model, Batch(inputs, labels), [derived_seed(0, f"made up/{k}") for k in range(_MADE_UP)])
    kept = {name: t.detach() for name, t in shared.tensors.items() if name in observation.update.tensors}
    every = SharedUpdate(shared.kind, kept)
    return [dataclasses.replace(observation, update=every.take([k])) for k in range(_MADE_UP)]


def _marks(observation: Observation) -> _Marks:
    tensors = observation.update.tensors
    entries = sum(t.numel() for t in tensors.values())
    largest = max(tensors.values(), key=lambda t: t.numel()).flatten()
    some = largest[largest != 0][:_COUNTED].abs()
    zeros = sum(int((t == 0).sum()) for t in tensors.values()) / max(1, entries)
    return _Marks(_noise(observation), zeros, len(torch.unique(some)))


def _noise(observation: Observation) -> float | None:
    try:
        clues = clues_of(observation, public=False)
    except NotApplicable:
        return None
    return noise_share(clues) if clues.has_bias else None
