"""What an attacker does: the base of every attack, what it knows of defenses, and what it claims to have recovered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, final

from leakgauge.errors import BadInput, HiddenFact, LeakgaugeError, NotApplicable
from leakgauge.settings import Settings
from leakgauge.types.client import CROSS_ENTROPY, ONE_CLASS, Batch, DataSpec, take
from leakgauge.types.knowledge import Fact, Observation

if TYPE_CHECKING:  # what only names things, such as `leakgauge list`, does not wait for torch
    from torch import Tensor, nn

BLANK = 0.5  # fills the rows of `inputs` that claim nothing
NO_LABEL = -1  # the same for a label


@dataclass(frozen=True)
class Reconstruction:
    """What an attack claims, one row per trial. `objective` is the attack's own, never a score."""

    inputs: Tensor | None  # (T, N, *shape), unclamped; None for attacks on labels or properties alone
    labels: Tensor | None  # (T, N), int64
    objective: Tensor  # (T,)
    steps: Tensor  # (T,) optimiser steps, over all restarts
    evaluations: Tensor  # (T,) gradient evaluations, over all restarts
    seconds: float = 0.0  # wall clock for all trials together
    trace: Tensor | None = None  # (T, S) own objective along the kept attempt; nan behind its end
    finished: Tensor | None = None  # (T,) False for trials that an interrupt cut off; None if there was none
    notes: tuple[str, ...] | None = None  # one per trial: what the attack has to say about its own way
    certified: Tensor | None = None  # (T,) records that the attack itself proved right, without the truth
    labels_proven: Tensor | None = None  # (T,) labels that the update itself proves to be there, without statistics
    claimed: Tensor | None = None  # (T, N) bool: the rows of `inputs` that it stands for (None: all)
    solved: Tensor | None = None  # (T,) bool: the objective met the attack's own threshold, in one step or more
    answers: Tensor | None = None  # (T, A, N, *shape): where there are several and the closest counts; one is `inputs`
    answer_names: tuple[str, ...] = ()  # one for each of the A
    film: Tensor | None = None  # (T, F, N, *shape): `inputs` on the way, one after each of `film_steps`
    film_steps: tuple[int, ...] = ()

    def take(self, rows: Sequence[int]) -> Reconstruction:
        """Only these rows; `seconds` stays what all took together."""
        from torch import Tensor

        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        notes = None if self.notes is None else tuple(self.notes[row] for row in rows)
        return dataclasses.replace(self, notes=notes, **take(tensors, rows))

    def labels_of(self, trial: int) -> list[int | None] | None:
        """The labels of one trial as plain numbers, None where no label is named; None if none is claimed at all."""
        if self.labels is None:
            return None
        return [None if label == NO_LABEL else label for label in self.labels[trial].tolist()]


def _check_answers(name: str, result: Reconstruction) -> None:
    if result.answers is None:
        return
    shape, one = tuple(result.answers.shape), None if result.inputs is None else tuple(result.inputs.shape)
    if one is None or (shape[0], *shape[2:]) != one or shape[1] != len(result.answer_names):
        raise LeakgaugeError(
            f"attack {name!r} returned answers of shape {shape} under {len(result.answer_names)} names beside inputs "
            f"of shape {one}: must be (trials, answers, records, sample) with a name for each answer"
        )


def _check_film(name: str, result: Reconstruction) -> None:
    if result.film is None:
        return
    shape, one = tuple(result.film.shape), None if result.inputs is None else tuple(result.inputs.shape)
    if one is None or (shape[0], *shape[2:]) != one or shape[1] != len(result.film_steps) or result.answers is not None:
        raise LeakgaugeError(
            f"attack {name!r} returned a film of shape {shape} at {len(result.film_steps)} steps beside inputs of "
            f"shape {one}: must be (trials, frames, records, sample) with a step for each frame and no further answers"
        )


def _check_claims(name: str, result: Reconstruction) -> None:
    import torch

    if result.claimed is None:
        return
    if result.inputs is None or result.claimed.shape != result.inputs.shape[:2] or result.claimed.dtype != torch.bool:
        raise LeakgaugeError(
            f"attack {name!r} returned claimed of shape {tuple(result.claimed.shape)} and {result.claimed.dtype}: "
            "one bool for each record of inputs is needed"
        )


Progress = Callable[[float], None]  # gets the share of the work that is done, 0 to 1


class Informs(Protocol):
    """What an attack needs of a defense that its attacker knows; every `Defense` has it."""

    @property
    def guesses(self) -> int:
        """How many things chance may have done that an attacker has to try."""

    def numbers_per_row(self, observation: Observation) -> int:
        """What one informed search holds besides gradients and samples, in numbers."""

    def informs(self, problem: Any, observation: Observation, way: str) -> Any:
        """The problem of an attacker who knows the defense."""

    def informs_server(self, server: Any) -> Any:
        """The tampering server that knows the defense."""


@dataclass(frozen=True)
class Known:
    """A defense that the attacker knows, and in which of its ways it uses that."""

    defense: Informs
    way: str = ""


def no_progress(_: float) -> None:
    """For callers that do not watch."""


@dataclass(frozen=True)
class Attack(Settings):
    """One published attack. Fields are its hyper-parameters; model and update arrive at the call.

    A subclass sets `name`, `summary`, `paper` and `needs`, and writes `solve`. One that poses a problem of a
    `kind` that defenses know (see `leakgauge.matching`) writes `problem` too, and is run against every defense by an
    attacker who knows it, without a line about any of them.
    """

    paper: ClassVar[str]
    needs: ClassVar[frozenset[Fact]]
    kind: ClassVar[type] = Observation  # of the problem; of an observation as it is no defense has anything to say
    baseline: ClassVar[bool] = False  # True for floors that ignore the update
    losses: ClassVar[tuple[str, ...]] = (CROSS_ENTROPY,)  # the client's under which it holds; none for all
    weighed: ClassVar[bool] = False  # True where it holds under label smoothing and class weights as well
    decoy: ClassVar[bool] = False  # True where a picture may come from the prior alone: a decoy is attacked beside it
    # How an audit that names no attacks runs it; see `leakgauge.setup.suites`.
    tier: ClassVar[str] = ""  # the shortest suite that runs it, and with it the longer ones; none unless given
    cost: ClassVar[float] = 5.0  # its place among the others: below 1 it reads, below 5 it solves, then it searches
    in_suites: ClassVar[Mapping[str, str | None]] = {}  # suite -> its fields there; None: another one replaces it
    unlabelled_in: ClassVar[tuple[str, ...]] = ()  # suites that run it only where no rule can read the labels
    undefended_only: ClassVar[bool] = False  # True where it rests on equations that any defense breaks

    @property
    def rows_per_trial(self) -> int:
        """How many searches run side by side for one trial: what a trial needs in memory."""
        return 1

    def numbers_per_row(self, observation: Observation) -> int:  # noqa: ARG002
        """What one search holds besides gradients and samples, in numbers: the weights of a generator, say."""
        return 0

    def concerns(self, observation: Observation) -> tuple[str, ...]:  # noqa: ARG002
        """Ids of the flags that can be raised before the attack runs."""
        return ()

    def check(self, observation: Observation) -> None:  # noqa: ARG002
        """Raise `NotApplicable` where the attack cannot work, in no time: a suite asks before it spends any."""
        return

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Any:  # noqa: ARG002
        """What has to be solved, of the attack's `kind`: the observation itself unless overridden."""
        return observation

    def solve(self, problem: Any, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        """What the attack makes of the problem, as it posed it or as a known defense rewrote it."""
        raise NotImplementedError  # abstract

    @final
    def __call__(
        self,
        observation: Observation,
        seeds: Sequence[int],
        progress: Progress = no_progress,
        known: Sequence[Known] = (),
    ) -> Reconstruction:
        """Check what the attack needs, pose its problem, let what is `known` rewrite it, solve it: a seed per trial.

        `known` are the defenses that the attacker knows, in the order in which they act; the last is undone first.
        """
        self._check_needs(observation, seeds)
        problem = self.problem(observation, tuple(seeds))
        for each in reversed(known):
            problem = each.defense.informs(problem, observation, each.way)
        result = self.solve(problem, tuple(seeds), progress)
        _check_shapes(self.name, result, observation.trials)
        return result

    def _check_needs(self, observation: Observation, seeds: Sequence[int]) -> None:
        missing = sorted(f.value for f in self.needs if not observation.knows(f))
        if missing:
            raise HiddenFact(
                f"attack {self.name!r} needs {', '.join(missing)}, which the threat model "
                f"{observation.threat_model.name!r} hides; choose another attack or threat model"
            )
        if len(seeds) != observation.trials:
            raise BadInput(
                "seeds", allowed=f"{observation.trials}, one per trial", got=len(seeds), do="give one seed per trial"
            )
        self.check_loss(observation)

    def check_loss(self, observation: Observation) -> None:
        """Refuse an observation whose loss, or whose targets, the attack does not hold for."""
        if not self.losses or self.baseline:
            return
        rests = f"{self.name} rests on"
        if observation.knows(Fact.LOCAL_TRAINING):
            local = observation.fact(Fact.LOCAL_TRAINING)
            if local.kind_of_loss not in self.losses:
                raise NotApplicable(f"{rests} {' or '.join(self.losses)}, and the clients' loss is {local.loss}")
            more = "smoothed labels" if local.label_smoothing else "weights of classes" if local.class_weights else ""
            if more and not self.weighed:
                raise NotApplicable(f"{rests} {' or '.join(self.losses)} as it is, and the clients' has {more}")
        if observation.knows(Fact.INPUT_SPEC) and observation.fact(Fact.INPUT_SPEC).target != ONE_CLASS:
            raise NotApplicable(f"{rests} one class a sample, and targets here are others")


def _check_shapes(name: str, result: Reconstruction, trials: int) -> None:
    for what in ("inputs", "labels", "objective"):
        tensor = getattr(result, what)
        if tensor is not None and tensor.shape[0] != trials:
            raise LeakgaugeError(f"attack {name!r} returned {what} for {tensor.shape[0]} of {trials} trials")
    _check_claims(name, result)
    _check_answers(name, result)
    _check_film(name, result)


@dataclass(frozen=True)
class TamperingServer(Attack):
    """A server that changes the model before the client trains on it, then reads the update."""

    changes: ClassVar[str] = "parameters"  # or "architecture": what the threat model must allow
    asks_again: ClassVar[bool] = False  # True if it queries a client more than once: its trials run one by one

    def prepare(self, model: nn.Module, data: DataSpec, public: Batch | None = None) -> nn.Module:
        """The model that is sent instead. Must not touch the one it is given.

        `public` are samples of the same kind that belong to nobody here, where the threat model grants them.
        """
        raise NotImplementedError  # abstract

    def louder(self) -> TamperingServer | None:
        """This server with larger gradients, which noise of a fixed size cannot drown; None if it has no such knob.

        What a server sends that knows of the noise. A bound on the update's size undoes it.
        """
        return None

    def ask_again(self, observation: Observation, asked: int) -> nn.Module | None:  # noqa: ARG002
        """The next model for the same client with the same data, or None once `solve` has what it needs.

        `observation` is that of one trial after `asked` queries; its model is the one that was sent last.
        """
        return None
