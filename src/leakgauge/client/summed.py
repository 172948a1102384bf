"""What an attacker sees of clients that do not stand alone: m of them train apart, and their sum or mixtures arrive."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from leakgauge.client.chain import chain
from leakgauge.engine.randomness import derived_seed
from leakgauge.errors import NotApplicable
from leakgauge.types import Batch, Defense, SharedUpdate, Step


def in_sum(defenses: Sequence[Defense]) -> int:
    """Clients behind one update that is seen: 1 unless a defense of the chain adds them up."""
    return max((d.in_sum for d in defenses), default=1)


def fellows(defenses: Sequence[Defense]) -> int:
    """Other clients whose updates are mixed into the one that is seen: 0 unless a defense of the chain mixes."""
    return max((d.fellows for d in defenses), default=0)


def behind_one(defenses: Sequence[Defense]) -> int:
    """Clients whose samples stand behind one update that is seen, attacked or not."""
    return max(in_sum(defenses), 1 + fellows(defenses))


def seen_step(step: Step, *defenses: Defense, informed: bool = False) -> Step:
    """`chain(step, *defenses)`; where clients do not stand alone, a step on the samples of all m of them.

    Its batch is (T, m x N, ...), client after client, and its update what the attacker is left with: the server with a
    sum, a fellow client with what it makes of mixtures, more if `informed`. The first client has the trial's own seed.
    """
    single, clients = chain(step, *defenses), behind_one(defenses)
    if clients == 1:
        return single
    if in_sum(defenses) > 1 and fellows(defenses):
        raise NotApplicable("a sum has nothing to mix: of clients that are added up, nobody tries a single model")
    adding = next(d for d in defenses if clients in (d.in_sum, 1 + d.fellows))

    def together(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        trials, samples = batch.labels.shape[:2]
        if samples % clients:
            raise NotApplicable(f"{adding.name} needs as many samples of each of its {clients} clients, not {samples}")
        apart = Batch(
            *(t.reshape(trials * clients, samples // clients, *t.shape[2:]) for t in (batch.inputs, batch.labels))
        )
        each = single(model, apart, [own for seed in seeds for own in seeds_of_clients(seed, clients)])
        if fellows(defenses):
            return adding.received(each, seeds, informed)
        sums = [adding.aggregate(each.take(range(t * clients, (t + 1) * clients))) for t in range(trials)]
        tensors = {name: torch.cat([s.tensors[name] for s in sums]) for name in sums[0].tensors}
        buffers = {name: torch.cat([s.buffers[name] for s in sums]) for name in sums[0].buffers}
        return SharedUpdate(each.kind, tensors, buffers)

    return together


def seeds_of_clients(seed: int, clients: int) -> list[int]:
    """A seed for each client of a sum, the first with that of the trial."""
    return [seed, *(derived_seed(seed, f"client/{c}") for c in range(1, clients))]
