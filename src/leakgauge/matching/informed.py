"""What an attacker was told of the client's defences, put into the puzzle it solves: one place for all who match.

Each word is a field of the attacks that can use it, set by a defence's adaptive version.
"""

from __future__ import annotations

import dataclasses

from leakgauge.matching import clipping as clipped
from leakgauge.matching import compression as compressed
from leakgauge.matching import hidden_noise
from leakgauge.matching.muting import muted
from leakgauge.matching.problem import Puzzle
from leakgauge.matching.sum_of_clients import with_clients
from leakgauge.matching.unlocking import with_unlocking
from leakgauge.matching.unmixing import with_unmixing
from leakgauge.matching.unrolling import with_repeats
from leakgauge.matching.untransforming import THROUGH, with_policy
from leakgauge.matching.updates import observed_gradient
from leakgauge.types import Observation


def as_told(
    puzzle: Puzzle,
    observation: Observation,
    *,
    clients: int = 1,
    skip: str = "",
    bottleneck: str = hidden_noise.IGNORE,
    unlock: bool = False,
    unmix: bool = False,
    policy: str = "",
    undo: str = THROUGH,
    repeats: int = 1,
    repeat_lr: float = 0.01,
    compression: str = compressed.NONE,
    clipping: str = clipped.NONE,
) -> Puzzle:
    """The same puzzle for an attacker who knows this; the defaults know nothing.

    Units (`centre`, `unit`, `label_unit`) have to be in it already: mixtures are made in them.
    """
    puzzle = muted(with_clients(puzzle, observation, clients), skip)
    puzzle = hidden_noise.with_noise(puzzle, observed_gradient(observation), bottleneck)
    puzzle = with_unlocking(puzzle, observation) if unlock else puzzle
    puzzle = with_unmixing(puzzle, observation) if unmix else puzzle
    puzzle = with_policy(puzzle, observation, policy, undo)
    puzzle = with_repeats(puzzle, observation, repeats, repeat_lr)
    return dataclasses.replace(
        puzzle, compression=compressed.compression_of(compression), clipping=clipped.clipping_of(clipping)
    )
