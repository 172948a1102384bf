"""FedKL's key-lock: scale and shift of one normalisation come from a key and a lock that never leave the client.

Ren, "Gradient Leakage and Protection for Federated Learning", thesis, Swansea 2023, chapter 5. The layer normalises
without scale and shift of its own; gamma = W_g k + b_g and beta = W_b k + b_b are made from the private key k by the
private lock (W, b). The update has no tensor for either, and whoever does not know them computes other gradients.
A model without a normalisation gets a BatchNorm behind its first convolution.

Text and released code differ. The code puts gamma and beta through a ReLU or a sigmoid (`activation`), the text does
not (`identity`, our default). A ReLU switches channels off for good. In the text the server makes the model with a lock
in it and hands it out: all clients begin with one lock, and the server knows it (`first_lock=server`, our default).
Each client draws a key. `first_lock=client` has every client draw a lock of its own, which nobody else ever sees.

`told` says what the attacker is given. The thesis shares the key (`key`), the gradient of the lock layer (`gradient`),
or both (`key-and-gradient`). `lock` and `both` give the values of the client's lock, and those with the key.

Where we depart. Each update is taken in the first round: with a key as it is drawn and a lock that has not trained yet;
how locks train is in `lab/locked_training.py`.

How to beat it. The gradient of the lock's weight is that of its bias times the key: who sees both divides and has the
key (`reading.py`, `leakgauge lab read-key`). Who knows the first lock and the key has the whole network.
Without the key there are two numbers per channel to find, and the update has thousands of equations: search for them
together with the image (`joint`), or also leave out the tensors in front of the lock and match what lies behind it
(`behind the lock`). Then stretch the picture: BatchNorm in train mode hides the scale of one sample, and with it most
of what the thesis measures. `--assume` can name both ways without that (`joint, not stretched`), as a recipe does.
Compare with `batchnorm-only`, and look at aligned scores. A first dense layer in front of the lock gives its input away
as ever.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from leakgauge.defenses.batchnorm_only import with_hidden_scale
from leakgauge.defenses.key_lock.unlocking import before_the_lock, with_unlocking
from leakgauge.errors import BadInput
from leakgauge.matching.first_layer import LEAST_SQUARES, FirstLayer
from leakgauge.matching.problem import Matching, inside
from leakgauge.models.locked_norm import (
    ACTIVATIONS,
    FIRST,
    INITS,
    PARTS,
    SeveralRounds,
    draw_locks,
    locks_in,
    with_norm,
)
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Defense, Observation, SharedUpdate, Step

SERVER, CLIENT = FIRST_LOCKS = ("server", "client")  # who makes the lock that a client begins with
JOINT, BEHIND = ("joint", "behind the lock")
_UNSTRETCHED = {f"{way}, not stretched": way for way in (JOINT, BEHIND)}
_TOLD = {  # the values that are given; a gradient stands among the tensors of the update
    "nothing": (),
    "key": ("key",),
    "gradient": (),
    "key-and-gradient": ("key",),
    "lock": ("weight", "bias"),
    "both": PARTS,
}


@dataclass(frozen=True)
class KeyLock(Defense):
    """Example: `--defense key-lock:activation=sigmoid --local batchnorm=train`"""

    name: ClassVar[str] = "key-lock"
    summary: ClassVar[str] = "scale and shift of one normalisation come from a private key and lock"
    paper: ClassVar[str] = "Ren 2023 (FedKL)"

    length: int = setting(1024, "numbers in the key", low=1)
    activation: str = setting(
        "identity",
        "what scale and shift go through: nothing, as in the text, or what the released code has",
        choices=ACTIVATIONS,
    )
    layer: str = setting(FIRST, "the normalisation, or the layer that gets one behind it, by name; or the first")
    init: str = setting("default", "first values of the lock: PyTorch's rule, or U(-0.5, 0.5)", choices=INITS)
    first_lock: str = setting(
        SERVER,
        "who makes the first lock: the server, for all and known to it, or each client its own",
        choices=FIRST_LOCKS,
    )
    lock_seed: int = setting(0, "seed of the server's first lock", low=0)
    rounds: int = setting(1, "rounds with the same samples, key and lock whose updates the attacker keeps", low=1)
    drift: float = setting(0.1, "how far weights move between those rounds, as a share of their size", above=0)
    told: str = setting(
        "nothing",
        "what the attacker is given: the key, the gradient of the lock layer, or the values of the lock",
        choices=tuple(_TOLD),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds > 1 and self._shares_gradient:
            raise BadInput(
                "key-lock: told",
                allowed="without gradient where rounds is above 1",
                got=repr(self.told),
                do="one round's gradient of the lock gives the key away: leave rounds out",
            )

    @property
    def _shares_gradient(self) -> bool:
        return self.told in ("gradient", "key-and-gradient")

    def prepare(self, model: nn.Module) -> nn.Module:
        """`model` with the locked layer, nobody's key in it; at the weights of all rounds that are seen."""
        locked = with_norm(model, self.layer, self.length, self.activation)
        (lock,) = locks_in(locked).values()
        if self.first_lock == SERVER:
            lock.publish(self.lock_seed, self.init)
        if self._shares_gradient:
            lock.share_gradient()
        return locked if self.rounds == 1 else SeveralRounds(locked, self.rounds, self.drift)

    def wrap(self, step: Step) -> Step:
        def locked(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            worker = copy.deepcopy(model)
            ((name, lock),) = locks_in(worker).items()
            drawn = draw_locks(seeds, lock, self.init)
            if self.first_lock == SERVER:  # it stands in the model already
                first = {part: getattr(lock, part).detach().clone() for part in ("weight", "bias")}
                drawn |= {part: values.expand(len(seeds), *values.shape) for part, values in first.items()}
            shared = []
            for trial, seed in enumerate(seeds):
                lock.put({part: values[trial] for part, values in drawn.items()})
                shared.append(step(worker, batch.take([trial]), [seed]))
            tensors, buffers = (
                {n: torch.cat([getattr(s, what)[n] for s in shared]) for n in getattr(shared[0], what)}
                for what in ("tensors", "buffers")
            )
            told = {f"{name}.{part}" if name else part: drawn[part] for part in _TOLD[self.told]}
            return dataclasses.replace(shared[0], tensors=tensors, buffers=buffers | told)

        return locked

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """Scale and shift are searched for with the inputs; all layers are compared, or those behind the lock."""
        return (JOINT, BEHIND) if issubclass(attack.kind, Matching) else super().ways(attack)

    def weaker_ways(self, attack: Attack) -> tuple[str, ...]:
        return tuple(_UNSTRETCHED) if issubclass(attack.kind, Matching) else ()

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        found = with_unlocking(problem if way in _UNSTRETCHED else with_hidden_scale(problem), observation)
        if _UNSTRETCHED.get(way, way) == JOINT:
            return found
        return found.without(inside(before_the_lock(found.model), found.observed))

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return problem.replace(combine=LEAST_SQUARES)  # the first layer's ratio never saw the lock
