"""What a client does against it: the base of every defence, and the promise it may make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from leakgauge.settings import Settings
from leakgauge.types.attack import Attack
from leakgauge.types.client import Batch, SharedUpdate, Step

if TYPE_CHECKING:  # what only names things, such as `leakgauge list`, does not wait for torch
    from torch import Size, Tensor, nn


@dataclass(frozen=True)
class Guarantee:
    """An accounted promise. Nothing un-accounted is called differential privacy."""

    epsilon: float  # of (epsilon, delta) differential privacy
    delta: float  # of the same
    unit: str  # "sample" or "client"


@dataclass(frozen=True)
class Defense(Settings):
    """One defence: where it acts, how to beat it, what it promises. Override what applies."""

    paper: ClassVar[str]
    keeps: ClassVar[bool] = False  # True if a client keeps something back between rounds: see `remembering`

    @property
    def in_sum(self) -> int:
        """Clients whose updates the server sees only added up, by `aggregate`; 1 where it sees each of them."""
        return 1

    @property
    def fellows(self) -> int:
        """Other clients whose updates `received` needs beside the victim's; the last of them is the attacker."""
        return 0

    def prepare(self, model: nn.Module) -> nn.Module:
        """Put something into the network; the given model stays untouched."""
        return model

    def wrap(self, step: Step) -> Step:
        """Change the data before, the local step itself, or the update after."""
        return step

    def trained_on(self, batch: Batch, seeds: Sequence[int]) -> Batch:  # noqa: ARG002
        """What the local step sees in place of the client's samples; overridden where that is another picture."""
        return batch

    def undone(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:  # noqa: ARG002
        """(T, N, *sample) that were `trained_on`, turned back as far as they can be by who knows all that was drawn."""
        return inputs

    def begun(self, model: nn.Module, shape: Sequence[int]) -> Self:  # noqa: ARG002
        """As it acts in a training that begins with this model, on samples of this shape; called once."""
        return self

    def remembering(self, shared: SharedUpdate, memory: Mapping[str, Tensor]) -> tuple[SharedUpdate, dict[str, Tensor]]:
        """For defences that `keeps`: what is sent, and what the client keeps for its next round; all (T, ...).

        `memory` is empty in a client's first round.
        """
        return shared, dict(memory)

    def bytes_up(self, tensors: Mapping[str, Size], number_bytes: int = 4) -> int:
        """What one client sends in a round, for parameters of these shapes: every number, unless overridden."""
        return number_bytes * sum(shape.numel() for shape in tensors.values())

    def bytes_down(self, tensors: Mapping[str, Size], number_bytes: int, clients: int) -> int:  # noqa: ARG002
        """What one of a round's `clients` receives: the model, unless overridden."""
        return number_bytes * sum(shape.numel() for shape in tensors.values())

    def aggregate(self, updates: SharedUpdate) -> SharedUpdate:
        """What the server does with the clients' updates: (T clients) -> T = 1. The mean by default."""
        buffers = {n: b.double().mean(0, keepdim=True).to(b.dtype) for n, b in updates.buffers.items()}
        return replace(updates.map(lambda _, t: t.mean(0, keepdim=True)), buffers=buffers)

    def aggregate_weighted(self, scaled: SharedUpdate, weights: Tensor) -> SharedUpdate:  # noqa: ARG002
        """`aggregate` where clients have weights (T,) of sum 1; each row comes multiplied by T times its weight."""
        return self.aggregate(scaled)

    def received(self, updates: SharedUpdate, seeds: Sequence[int], informed: bool) -> SharedUpdate:  # noqa: ARG002
        """What a fellow client has of the victims: (T x (1 + fellows), ...) -> (T, ...), groups in a row, victim first.

        `informed` is the fellow client that knows this defence and puts together all that it received.
        """
        return updates

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:  # noqa: ARG002
        """The versions of `attack` that know this defence is there; empty if knowing does not help it."""
        return ()

    def in_round(self, number: int) -> Self:  # noqa: ARG002
        """As it acts `number` rounds later on the same samples; the same but for defences that keep something back."""
        return self

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        """What an attacker who knows this defence makes of the updates of several rounds, on the same samples at the
        same weights. The first one alone unless overridden: right where one update tells as much as many.
        """
        return updates[0]

    def guarantee(self) -> Guarantee | None:
        return None
