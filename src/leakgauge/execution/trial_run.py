"""One attack on some victims: the model is sent, the clients answer, the attacker sees what its threat model allows.

How many victims take part at once is decided by `leakgauge.execution.batching`. A server that asks the same client
again takes one victim after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from torch import nn

from leakgauge.client.chain import prepared
from leakgauge.client.observe import observe
from leakgauge.errors import LeakgaugeError, NotApplicable
from leakgauge.execution.batching import asks_again, at_once, bytes_per_trial, in_batches
from leakgauge.setup.setup import Setup
from leakgauge.setup.suites import ALLOWED
from leakgauge.types import (
    Attack,
    Batch,
    Defense,
    Known,
    Observation,
    Progress,
    Reconstruction,
    SharedUpdate,
    TamperingServer,
    ThreatModel,
)
from leakgauge.verdict.flags import is_unchanged

_COPIES = 4  # of an update: the client's, the defended one, and what an attack makes of it
_LARGE = 2**26  # bytes of an update from which one trial must speak for all
_SPEAKERS = 32  # trials that are asked whether a defense does anything
_MOST_QUERIES = 100  # a server that is still not content by then never will be


@dataclass(frozen=True)
class TrialRun:
    """One attack, one configuration, and the clients that hold `behind`."""

    setup: Setup
    attack: Attack
    defenses: tuple[Defense, ...]
    threat: ThreatModel
    behind: Batch | None  # the samples behind the updates; None in a blind audit
    informed: bool = False  # does the attacker know the defenses, and combine several rounds?
    known: tuple[Known, ...] = ()  # what it knows of them

    @cached_property
    def played(self) -> Attack:
        """The attack; of a tampering server, as it is with what it knows."""
        if not isinstance(self.attack, TamperingServer):
            return self.attack
        return reduce(lambda server, k: k.defense.informs_server(server), reversed(self.known), self.attack)

    @cached_property
    def sent(self) -> nn.Module:
        """The model that the clients get first: the global one, or what a tampering server makes of it."""
        if not isinstance(self.played, TamperingServer):
            return self.setup.model
        if self.setup.victims.shared is not None:
            raise NotApplicable(f"{self.played.name} changes the model that a client gets, and this update was saved")
        if self.played.changes not in ALLOWED[self.setup.threat_model.may_change]:
            raise NotApplicable(
                f"{self.played.name} changes the model's {self.played.changes}, which "
                f"{self.setup.threat_model.name!r} may not; use --threat-model malicious-{self.played.changes}"
            )
        return self.played.prepare(self.setup.model, self.setup.data, self.setup.public)

    def concerns(self, trial: int) -> tuple[str, ...]:
        """What is known against the attack before it starts; the same for every trial."""
        if type(self.played).concerns is Attack.concerns:
            return ()
        return self.played.concerns(self._seen([trial], self.sent))

    def of(self, trials: Sequence[int], progress: Progress) -> Reconstruction:
        """What the attack makes of these trials; after an interrupt, of those up to it."""

        def play(some: Sequence[int], attack: Attack, progress: Progress) -> Reconstruction:
            return attack(self._final(some), [self.setup.scenario.seeds[t] for t in some], progress, self.known)

        return in_batches(play, self.played, trials, self.at_once(trials), self.setup.device, progress)

    def at_once(self, trials: Sequence[int]) -> int:
        """How many of these trials one call of the attack takes, by the memory that is free now."""
        if len(trials) == 1 or asks_again(self.played):
            return 1
        updates = (_COPIES + self._rounds) * self._update_bytes()
        return at_once(updates, self._attack_bytes, self.setup.device)

    @cached_property
    def defense_did_nothing(self) -> bool:
        """Is the first update what it would have been without the defenses? The first trials speak for all."""
        if self.setup.victims.shared is not None:
            return False  # nobody knows what it would have been
        few = range(1 if self._update_bytes() > _LARGE else min(_SPEAKERS, self.setup.scenario.trials))
        with_them = self.setup.update(self.defenses, self.sent, self.behind, few)
        return is_unchanged(with_them, self.setup.update((), self.sent, self.behind, few))

    def _final(self, rows: Sequence[int]) -> Observation:
        """What the attacker sees at the end: after its only query, or after its last."""
        seen = self._seen(rows, self.sent)
        if not isinstance(self.played, TamperingServer) or not self.played.asks_again:
            return seen
        for asked in range(1, _MOST_QUERIES):
            following = self.played.ask_again(seen, asked)
            if following is None:
                return seen
            seen = self._seen(rows, following)
        raise LeakgaugeError(f"{self.played.name} still asks after {_MOST_QUERIES} queries")

    def _seen(self, rows: Sequence[int], sent: nn.Module) -> Observation:
        model = prepared(sent, *self.defenses)
        update = _no_update(model, len(rows))
        if not self.played.baseline:  # a floor does not look at it, and for large models it costs minutes
            of = self.setup.combined_update if self._rounds > 1 else self.setup.update
            update = of(self.defenses, sent, self.behind, rows, self.informed)
        held = None if self.behind is None else self.behind.take(rows)
        facts = self.setup.facts(model, held, self.threat.facts, self._rounds)
        if self.played.baseline:
            return Observation(model, update, self.threat, {f: v for f, v in facts.items() if f in self.threat.facts})
        return observe(model, update, self.threat, facts, self.setup.scenario.shared_layers)

    @property
    def _rounds(self) -> int:
        """Rounds behind what the attacker looks at."""
        return self.setup.scenario.local.seen if self.informed else 1

    @cached_property
    def _attack_bytes(self) -> int:
        """What the attack holds for one trial."""
        return bytes_per_trial(self.played, self._seen([0], self.sent), self.known)

    def _update_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.sent.parameters() if p.requires_grad)


def _no_update(model: nn.Module, trials: int) -> SharedUpdate:
    zero = next(model.parameters()).new_zeros(())
    shapes = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    return SharedUpdate("gradient", {name: zero.expand(trials, *shape) for name, shape in shapes.items()})
