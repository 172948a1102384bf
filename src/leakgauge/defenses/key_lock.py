"""FedKL's key-lock: scale and shift of one normalisation come from a key and a lock that never leave the client.

Ren, "Gradient Leakage and Protection for Federated Learning", thesis, Swansea 2023, chapter 5. The layer normalises
without scale and shift of its own; gamma = W_g k + b_g and beta = W_b k + b_b are made from the private key k by the
private lock (W, b). The update has no tensor for either, and whoever does not know them computes other gradients.
A model without a normalisation gets a BatchNorm behind its first convolution.

Text and released code differ: the code puts gamma and beta through a ReLU or a sigmoid (`activation`), the text does
not (`identity`, our default). A ReLU switches channels off for good.

Where we depart. Each update is taken with a key and a lock as they are first drawn; how they train is in
`fl/locked_training.py`. `told` says what the attacker is given. In the thesis' evaluation the attacker always holds the
true lock weights, so its "key shared" is `told=both` here.

How to beat it. BatchNorm in train mode hides the scale of one sample, and with it most of what the thesis measures:
compare with `batchnorm-only`, and look at aligned scores. Of the lock there are two numbers per channel, and the update
has thousands of equations: search for them together with the image (`unlock`), or also leave out the tensors in
front of the lock and match what lies behind it (`skip=lock`). Then stretch the picture (`stretch`). A first dense layer
in front of the lock gives its input away as ever. If the lock's own gradient were shared, its weight divided by its
bias would be the key.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from leakgauge.defenses.batchnorm_only import stretching
from leakgauge.models._key_lock import ACTIVATIONS, FIRST, INITS, PARTS, draw_locks, locks_in, with_norm
from leakgauge.models._several_rounds import SeveralRounds
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Defense, SharedUpdate, Step

_TOLD = {"nothing": (), "key": ("key",), "lock": ("weight", "bias"), "both": PARTS}


@dataclass(frozen=True)
class KeyLock(Defense):
    """Example: `--defense key-lock:activation=sigmoid --local batchnorm=train`"""

    name: ClassVar[str] = "key-lock"
    summary: ClassVar[str] = "scale and shift of one normalisation come from a private key and lock"
    paper: ClassVar[str] = "Ren 2023 (FedKL)"

    length: int = setting(1024, "numbers in the key", low=1)
    activation: str = setting(
        "identity", "what scale and shift go through: nothing, as in the text, or what the released code has",
        choices=ACTIVATIONS,
    )  # fmt: skip
    layer: str = setting(FIRST, "the normalisation, or the layer that gets one behind it, by name; or the first")
    init: str = setting("default", "first values of the lock: PyTorch's rule, or U(-0.5, 0.5)", choices=INITS)
    rounds: int = setting(1, "rounds with the same samples, key and lock whose updates the attacker keeps", low=1)
    drift: float = setting(0.1, "how far weights move between those rounds, as a share of their size", above=0)
    told: str = setting("nothing", "what the attacker is given of the client's key and lock", choices=tuple(_TOLD))

    def prepare(self, model: nn.Module) -> nn.Module:
        """`model` with the locked layer, nobody's key in it; at the weights of all rounds that are seen."""
        locked = with_norm(model, self.layer, self.length, self.activation)
        return locked if self.rounds == 1 else SeveralRounds(locked, self.rounds, self.drift)

    def wrap(self, step: Step) -> Step:
        def locked(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            worker = copy.deepcopy(model)
            ((name, lock),) = locks_in(worker).items()
            drawn = draw_locks(seeds, lock, self.init)
            shared = []
            for trial, seed in enumerate(seeds):
                for part, values in drawn.items():
                    setattr(lock, part, values[trial])
                shared.append(step(worker, batch.take([trial]), [seed]))
            tensors, buffers = (
                {n: torch.cat([getattr(s, what)[n] for s in shared]) for n in getattr(shared[0], what)}
                for what in ("tensors", "buffers")
            )
            told = {f"{name}.{part}" if name else part: drawn[part] for part in _TOLD[self.told]}
            return dataclasses.replace(shared[0], tensors=tensors, buffers=buffers | told)

        return locked

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:
        better = stretching(attack)
        joint = better.with_fields(unlock=True) if better else None
        behind = joint.with_fields(skip="lock") if joint else None
        fitted = attack.with_fields(combine="least-squares")  # the first layer's ratio never saw the lock
        return tuple(informed for informed in (joint, behind, fitted) if informed)
