"""How many trials run side by side, decided here and nowhere else.

Three limits, from the outside in. A work unit holds at most `SIZES` trials: its bounds are the same in every run, so
that numbers do not depend on who runs it. Within it as many trials run at once as fit into the memory that is free
(`at_once`). If memory runs out all the same, the batch is halved and the run goes on (`in_batches`). An interrupt keeps
the finished trials.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.engine.memory import fitting, is_out_of_memory
from leakgauge.types import Attack, Fact, Known, Observation, Progress, Reconstruction, TamperingServer

SIZES = {"cpu": 32, "cuda": 512}  # of a work unit: more gain little there, and would be lost with a killed process


# Plays some trials side by side: their numbers, the attack with its share of the time, progress of this part.
Play = Callable[[Sequence[int], Attack, Progress], Reconstruction]


def in_batches(
    play: Play, attack: Attack, trials: Sequence[int], size: int, device: torch.device, progress: Progress
) -> Reconstruction:
    """The trials of one attack, `size` of them at once; `finished` says which are whole after an interrupt.

    A batch that memory does not hold comes again in halves. An interrupt leaves what was finished.
    """
    parts: list[Reconstruction] = []
    done, every, interrupted = 0, len(trials), False
    while done < every and not interrupted:
        rows, too_many = trials[done : done + size], False
        share = _with_share_of_time(attack, parts, len(rows), every - done)
        try:
            parts.append(play(rows, share, partial(within, progress, done / every, len(rows) / every)))
            interrupted = parts[-1].finished is not None
            done += len(rows)
        except KeyboardInterrupt:
            if not parts:
                raise
            interrupted = True
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or len(rows) == 1:
                raise
            size, too_many = -(-len(rows) // 2), True
            error.__traceback__ = None  # its frames hold the tensors that did not fit
        if too_many:  # by now nobody holds them
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return parts[0] if len(parts) == 1 and not interrupted else _joined(parts, interrupted)


def reconstruct(
    attack: Attack, observation: Observation, seeds: Sequence[int], progress: Progress, known: Sequence[Known] = ()
) -> Reconstruction:
    """The attack on all trials of one observation."""
    device = next(iter(observation.update.tensors.values())).device
    size = fitting(bytes_per_trial(attack, observation, known), device)

    def play(trials: Sequence[int], attack: Attack, progress: Progress) -> Reconstruction:
        seen = observation.take(trials) if len(trials) < len(seeds) else observation
        return attack(seen, [seeds[t] for t in trials], progress, known)

    return in_batches(play, attack, range(len(seeds)), size, device, progress)


def at_once(bytes_of_updates: int, bytes_of_attack: int, device: torch.device) -> int:
    """How many trials run side by side, by the memory that is free now; bytes are those of one trial."""
    return min(fitting(bytes_of_updates, device), fitting(bytes_of_attack, device))


def asks_again(attack: Attack) -> bool:
    """Does it query the same client more than once? Then it takes one victim after another."""
    return isinstance(attack, TamperingServer) and attack.asks_again


def bytes_per_trial(attack: Attack, observation: Observation, known: Sequence[Known] = ()) -> int:
    """A trial holds many copies of its gradient in the double backward pass, and L-BFGS 200 copies of its inputs."""
    parameters = sum(p.numel() for p in observation.model.parameters())
    sample = 0
    if observation.knows(Fact.NUM_SAMPLES) and observation.knows(Fact.INPUT_SPEC):
        sample = observation.fact(Fact.NUM_SAMPLES) * torch.Size(observation.fact(Fact.INPUT_SPEC).shape).numel()
    number = next(iter(observation.update.tensors.values())).element_size()
    more = attack.numbers_per_row(observation) + sum(k.defense.numbers_per_row(observation) for k in known)
    rows = max([attack.rows_per_trial, *(k.defense.guesses for k in known)])
    return number * rows * (16 * parameters + 250 * sample + more)


def _with_share_of_time(attack: Attack, parts: Sequence[Reconstruction], now: int, left: int) -> Attack:
    """The attack with its part of the time that is left; the attack itself if its time budget is not for all trials."""
    budget = getattr(attack, "time_budget", None)
    if budget is None or asks_again(attack) or (not parts and now == left):
        return attack
    remaining = max(1e-3, budget - sum(p.seconds for p in parts))
    return attack.with_fields(time_budget=remaining * now / left) or attack


def within(progress: Progress, base: float, share: float, done: float) -> None:
    """Progress of a part that begins at `base` and is `share` of the whole."""
    progress(base + share * done)


def _joined(parts: Sequence[Reconstruction], interrupted: bool) -> Reconstruction:
    """Reconstructions of consecutive batches as one."""

    def cat(name: str) -> Any:
        tensors = [getattr(p, name) for p in parts]
        return None if any(t is None for t in tensors) else torch.cat(tensors)

    plain = ("inputs", "labels", "objective", "steps", "evaluations", "certified", "labels_proven", "solved", "answers")
    traces = [p.trace for p in parts if p.trace is not None]
    longest = max((trace.shape[1] for trace in traces), default=0)
    traces = [nn.functional.pad(t, (0, longest - t.shape[1]), value=torch.nan) for t in traces]
    whole = [torch.ones_like(p.objective, dtype=torch.bool) if p.finished is None else p.finished for p in parts]
    return Reconstruction(
        **{name: cat(name) for name in (*plain, "film")},
        seconds=sum(p.seconds for p in parts),
        trace=torch.cat(traces) if len(traces) == len(parts) else None,
        finished=torch.cat(whole) if interrupted else None,
        claimed=_all_claims(parts),
        answer_names=parts[0].answer_names,
        film_steps=parts[0].film_steps,
        notes=None if any(p.notes is None for p in parts) else tuple(note for p in parts for note in p.notes or ()),
    )


def _all_claims(parts: Sequence[Reconstruction]) -> Tensor | None:
    """(T, N) of all parts; a part without such a mask claims everything."""
    if all(p.claimed is None or p.inputs is None for p in parts):
        return None
    every = []
    for part in parts:
        assert part.inputs is not None
        everything = torch.ones(part.inputs.shape[:2], dtype=torch.bool, device=part.inputs.device)
        every.append(everything if part.claimed is None else part.claimed)
    return torch.cat(every)
