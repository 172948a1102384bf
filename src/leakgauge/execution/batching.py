"""How many trials run side by side, decided here and nowhere else.

Three limits, from the outside in. A work unit holds at most `SIZES` trials: its bounds are the same in every run, so
that numbers do not depend on who runs it. Within it as many trials run at once as fit into the memory that is free
(`at_once`). If memory runs out all the same, the batch is halved and the run goes on (`Batches`). An interrupt keeps
the finished trials.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from leakgauge.engine.memory import fitting, is_out_of_memory
from leakgauge.types import Attack, Fact, Known, Observation, Progress, Reconstruction, TamperingServer

SIZES = {"cpu": 32, "cuda": 512}  # of a work unit: more gain little there, and would be lost with a killed process


class Batches:
    """The trials of one attack, batch after batch, and what becomes of them:

        batches = Batches(attack, trials, size, device, progress)
        for batch in batches:
            with batches.kept(batch) as result:
                result.append(batch.attack(observation_of(batch.trials), ..., batch.progress))
        batches.joined()

    An interrupt ends them, and leaves what was finished. A batch that memory does not hold comes again in halves.
    """

    def __init__(
        self, attack: Attack, trials: Sequence[int], size: int, device: torch.device, progress: Progress
    ) -> None:
        self._attack = attack
        self._trials = trials
        self._size = size
        self._device = device
        self._progress = progress
        self._done = 0
        self._parts: list[Reconstruction] = []
        self._interrupted = False
        self._too_many = False

    def __iter__(self) -> Iterator[TrialBatch]:
        while self._done < len(self._trials) and not self._interrupted:
            if self._too_many:  # by now nobody holds the tensors that did not fit
                _free(self._device)
                self._too_many = False
            rows, every = self._trials[self._done : self._done + self._size], len(self._trials)
            share = _with_share_of_time(self._attack, self._parts, len(rows), every - self._done)
            yield TrialBatch(rows, share, partial(within, self._progress, self._done / every, len(rows) / every))

    @contextmanager
    def kept(self, batch: TrialBatch) -> Iterator[list[Reconstruction]]:
        """Where the batch's result goes; the place to run it."""
        result: list[Reconstruction] = []
        try:
            yield result
        except KeyboardInterrupt:
            if not self._parts:
                raise
            self._interrupted = True
            return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or len(batch.trials) == 1:
                raise
            self._size, self._too_many = -(-len(batch.trials) // 2), True
            error.__traceback__ = None  # its frames hold the tensors that did not fit
            return
        self._parts += result
        self._interrupted = result[0].finished is not None
        self._done += len(batch.trials)

    def joined(self) -> Reconstruction:
        """What came of all of them; `finished` says which are whole after an interrupt."""
        if len(self._parts) == 1 and not self._interrupted:
            return self._parts[0]
        return joined(self._parts, self._interrupted)


@dataclass(frozen=True)
class TrialBatch:
    """Trials that run side by side."""

    trials: Sequence[int]
    attack: Attack  # with its share of the time
    progress: Progress


def reconstruct(
    attack: Attack, observation: Observation, seeds: Sequence[int], progress: Progress, known: Sequence[Known] = ()
) -> Reconstruction:
    """The attack on all trials of one observation."""
    device = next(iter(observation.update.tensors.values())).device
    size = fitting(bytes_per_trial(attack, observation, known), device)
    batches = Batches(attack, range(len(seeds)), size, device, progress)
    for batch in batches:
        with batches.kept(batch) as result:
            seen = observation.take(batch.trials) if len(batch.trials) < len(seeds) else observation
            result.append(batch.attack(seen, [seeds[t] for t in batch.trials], batch.progress, known))
    return batches.joined()


def at_once(attack: Attack, bytes_of_updates: int, bytes_of_attack: int, device: torch.device) -> int:
    """How many trials one call of the attack takes, by the memory that is free now; bytes are those of one trial."""
    if asks_again(attack):
        return 1
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


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def joined(parts: Sequence[Reconstruction], interrupted: bool = False) -> Reconstruction:
    """Reconstructions of consecutive chunks as one."""

    def cat(name: str) -> Tensor | None:
        tensors = [getattr(p, name) for p in parts]
        return None if any(t is None for t in tensors) else torch.cat(tensors)

    longest = max((p.trace.shape[1] for p in parts if p.trace is not None), default=0)
    traces = [_padded(p.trace, longest) for p in parts if p.trace is not None]
    whole = [torch.ones_like(p.objective, dtype=torch.bool) if p.finished is None else p.finished for p in parts]
    return Reconstruction(
        inputs=cat("inputs"),
        labels=cat("labels"),
        objective=torch.cat([p.objective for p in parts]),
        steps=torch.cat([p.steps for p in parts]),
        evaluations=torch.cat([p.evaluations for p in parts]),
        seconds=sum(p.seconds for p in parts),
        trace=torch.cat(traces) if len(traces) == len(parts) else None,
        finished=torch.cat(whole) if interrupted else None,
        certified=cat("certified"),
        labels_proven=cat("labels_proven"),
        solved=cat("solved"),
        claimed=_all_claims(parts),
        answers=cat("answers"),
        answer_names=parts[0].answer_names,
        film=cat("film"),
        film_steps=parts[0].film_steps,
        notes=None if any(p.notes is None for p in parts) else tuple(note for p in parts for note in p.notes or ()),
    )


def _all_claims(parts: Sequence[Reconstruction]) -> Tensor | None:
    """(T, N) of all parts; one that says nothing claims everything."""
    if all(p.claimed is None or p.inputs is None for p in parts):
        return None
    every = []
    for part in parts:
        assert part.inputs is not None
        everything = torch.ones(part.inputs.shape[:2], dtype=torch.bool, device=part.inputs.device)
        every.append(everything if part.claimed is None else part.claimed)
    return torch.cat(every)


def _padded(trace: Tensor, length: int) -> Tensor:
    return nn.functional.pad(trace, (0, length - trace.shape[1]), value=torch.nan)
