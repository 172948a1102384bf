"""What a client does against it: the base of every defense, and the promise it may make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

from leakgauge.settings import Settings
from leakgauge.types.attack import Attack, TamperingServer
from leakgauge.types.client import Batch, SharedUpdate, Step
from leakgauge.types.knowledge import Observation

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
    """One defense: where it acts, how to beat it, what it promises. Override what applies."""

    paper: ClassVar[str]
    keeps: ClassVar[bool] = False  # True if a client keeps something back between rounds: see `remembering`
    strength: ClassVar[str] = ""  # the field that turns it off at 0; see `idle`

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
        """For defenses that `keeps`: what is sent, and what the client keeps for its next round; all (T, ...).

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
        """What another client has of the victims: (T x (1 + fellows), ...) -> (T, ...), groups in a row, victim first.

        `informed` is the other client that knows this defense and puts together all that it received.
        """
        return updates

    @property
    def idle(self) -> bool:
        """Is its strength zero, so that it does nothing and there is nothing to know?"""
        return bool(self.strength) and getattr(self, self.strength) == 0

    @property
    def guesses(self) -> int:
        """How many things chance may have done that an informed attacker has to try: attempts at least."""
        return 1

    def numbers_per_row(self, observation: Observation) -> int:  # noqa: ARG002
        """What a search that knows this defense holds besides gradients and samples, in numbers."""
        return 0

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """How an attacker who knows this defense can use that with `attack`, each way by a name; () if it helps nobody.

        One way without a name where there is a rule for the kind of problem that the attack poses.
        """
        if isinstance(attack, TamperingServer):
            return ("",) if not self.idle and self.informs_server(attack) != attack else ()
        return ("",) if self.has_rule_for(type(attack)) and not self.idle else ()

    def weaker_ways(self, attack: Attack) -> tuple[str, ...]:  # noqa: ARG002
        """Further ways, by name, that only who asks for one gets: weaker, and here to be compared with a paper's."""
        return ()

    @classmethod
    def has_rule_for(cls, attack: type[Attack]) -> bool:
        """Is it known how to rewrite problems of this attack's kind, or what a server of this kind would send?"""
        if issubclass(attack, TamperingServer):
            return cls.informs_server is not Defense.informs_server
        return _rule(cls, attack.kind) is not None

    def informs_server(self, server: TamperingServer) -> TamperingServer:
        """What a tampering server sends that knows this defense: the same unless overridden."""
        return server

    @final
    def informs(self, problem: Any, observation: Observation, way: str) -> Any:
        """`problem` as an attacker poses it who knows this defense and uses that in this way.

        The work is done by the method for the problem's kind, `informs_matching`, `informs_first_layer` or
        `informs_peeled`, each (problem, observation, way) -> problem. A defense writes those that it has a rule for;
        problems of other kinds stay as they are.
        """
        rule = _rule(type(self), type(problem))
        return problem if rule is None or self.idle else getattr(self, rule)(problem, observation, way)

    def in_round(self, number: int) -> Self:  # noqa: ARG002
        """As it acts `number` rounds later on the same samples; the same but for defenses that keep something back."""
        return self

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        """What an attacker who knows this defense makes of the updates of several rounds, on the same samples at the
        same weights. The first one alone unless overridden: right where one update says as much as many.
        """
        return updates[0]

    def guarantee(self) -> Guarantee | None:
        return None


def _rule(defense: type[Defense], kind: type) -> str | None:
    """The name of the method by which the defense rewrites problems of this kind; None where there is no such rule."""
    name: str | None = getattr(kind, "rule", None)
    return name if name is not None and hasattr(defense, name) else None
