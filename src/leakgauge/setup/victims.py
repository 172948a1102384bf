"""The victims of an audit: clients, each with one update, with or without the samples behind it.

Every audit takes its trials from here, whatever their source is:

- *simulated*: the samples are there, and the update is computed from them for each defense;
- *saved*, *recorded*, *handed over*: the update is there, and the samples behind it may be;
- *blind*: the same without the samples. Nothing can be scored then.

The samples are the truth. They go to the client, to the scores, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from leakgauge.client.summed import fellows, in_sum
from leakgauge.errors import LeakgaugeError
from leakgauge.types import Batch, Belonging, Defense, SharedUpdate


@dataclass(frozen=True)
class Victims:
    """T trials: one client each, with N private samples behind the update."""

    samples: int  # N
    crowd: Batch | None = None  # (T, m x N): the truth, and behind it the samples of clients whose updates are mixed in
    shared: SharedUpdate | None = None  # what the clients shared, where that is not to be computed
    names: tuple[str, ...] = ()  # of the clients, where somebody knows them
    belonging: Belonging | None = None  # does `shared` come from the truth? None where that is no question
    unreadable: tuple[tuple[str, str], ...] = ()  # (update, why) of recorded clients that had to be left out

    def __post_init__(self) -> None:
        if self.crowd is None and self.shared is None:
            raise LeakgaugeError("victims need their samples, their updates, or both")

    @property
    def trials(self) -> int:
        if self.crowd is not None:
            return self.crowd.trials
        assert self.shared is not None
        return self.shared.trials

    @property
    def blind(self) -> bool:
        """Are the samples behind the updates unknown?"""
        return self.crowd is None

    @property
    def truth(self) -> Batch:
        """(T, N): the victims' own samples."""
        everyone = self.everyone
        return Batch(everyone.inputs[:, : self.samples], everyone.labels[:, : self.samples])

    def name(self, trial: int) -> str:
        return self.names[trial] if self.names else str(trial)

    def behind(self, defenses: Sequence[Defense]) -> Batch:
        """The attacked samples behind one seen update: the victim's, and those of the clients it is added to."""
        samples = in_sum(defenses) * self.samples
        return Batch(self.everyone.inputs[:, :samples], self.everyone.labels[:, :samples])

    def with_fellows(self, defenses: Sequence[Defense], held: Batch) -> Batch:
        """`held`, and behind it as many samples of each client that is mixed into the update and not attacked."""
        if not fellows(defenses):
            return held
        begin, samples, crowd = self.samples, held.labels.shape[1], self.everyone
        parts = [held]
        for number in range(1, 1 + fellows(defenses)):
            own = slice(number * begin, number * begin + samples)
            parts.append(Batch(crowd.inputs[:, own], crowd.labels[:, own]))
        return Batch(torch.cat([p.inputs for p in parts], 1), torch.cat([p.labels for p in parts], 1))

    @property
    def everyone(self) -> Batch:
        """(T, m x N): the truth, and the samples of the other clients behind it; an error in a blind audit."""
        if self.crowd is None:
            raise LeakgaugeError("the samples behind these updates are not known: nothing can be compared with them")
        return self.crowd
