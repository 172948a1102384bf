"""Scale and shift of a locked normalisation: as far as told, and the rest searched for with the inputs.

Two numbers per channel stand between the attacker and the client's own network. A lock without its key leaves the key
to be searched for; a key without its lock says nothing about scale and shift, which are then searched for directly.
A lock is known if it was told or if the public model holds the one that the server made. A key is known if it was told
or if the gradient of the lock layer was shared, from which it is read. The gradient of the lock's weight has then said
all it can: it is that of the bias times the key. Only the bias is compared, as the weight would outweigh all the rest.
"""

from __future__ import annotations

import dataclasses

from torch import Tensor

from leakgauge.errors import NotApplicable
from leakgauge.matching.lock_key import read_key
from leakgauge.matching.problem import Puzzle, only
from leakgauge.models._key_lock import PARTS, locks_in
from leakgauge.settings import setting
from leakgauge.types import Observation

_UNIT = 0.3  # chosen by aligned PSNR on three CIFAR-10 victims among 0.01 to 3: 1 costs 2 to 8 dB, 0.03 about 4


def unlock_setting() -> bool:
    """The field by which an attack is told."""
    field: bool = setting(False, "search for scale and shift of a locked normalisation too, or take them as told")
    return field


def with_unlocking(puzzle: Puzzle, observation: Observation) -> Puzzle:
    """The same puzzle on the client's own network, as far as it is known; what is not is part of the search."""
    locks = locks_in(puzzle.model)
    if not locks:
        raise NotApplicable("unlock needs a model with a locked normalisation; leave it out")
    masks: dict[str, Tensor] = dict(puzzle.masks)
    hidden = dict(puzzle.hidden)
    for name, lock in locks.items():
        own = {part: f"{name}.{part}" if name else part for part in (*PARTS, "shift")}
        told = {part: observation.update.buffers[n] for part, n in own.items() if n in observation.update.buffers}
        gradient = observation.update.tensors
        if "key" not in told and own["weight"] in gradient and own["bias"] in gradient:
            told["key"] = read_key(gradient[own["weight"]], gradient[own["bias"]])
        if "key" in told and own["bias"] in puzzle.observed:
            puzzle = only(puzzle, [n for n in puzzle.observed if n != own["weight"]])
        known = "weight" in told or lock.public
        if known or own["weight"] in gradient:  # else a key acts on nothing
            masks |= {own[part]: values for part, values in told.items()}
        if not known:
            hidden[own["shift"]] = tuple(lock.shift.shape)
        elif "key" not in told:
            hidden[own["key"]] = tuple(lock.key.shape)
    return dataclasses.replace(puzzle, masks=masks, hidden=hidden, hidden_unit=_UNIT)
