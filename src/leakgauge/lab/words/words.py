"""Made-up words to draw: syllables, numbers, and a few mixtures of both; some are held out for tests.

From a list of English words a network could guess; these words teach it letters. The syllables are our own, so nothing
has to be downloaded, and there are always more words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from leakgauge.engine.randomness import generator
from leakgauge.lab.words.alphabet import ALPHABET

_BEGINS = (
    *"bcdfghjklmnprstvwyz",
    "bl",
    "br",
    "ch",
    "cl",
    "cr",
    "dr",
    "fl",
    "gr",
    "ph",
    "pl",
    "qu",
    "sh",
    "st",
    "th",
    "tr",
    "wh",
    "",
)
_MIDDLES = (*"aaeeiou", "ai", "ea", "ee", "ie", "oo", "ou", "y")
_ENDS = ("", "", "", *"dgklmnrstx", "ck", "ll", "nd", "ng", "nt", "rs", "ss", "ts")
_TESTED = 5  # every fifth word by its hash is never trained on


def made_up(count: int, longest: int, seed: int, role: str, *, held_out: bool) -> list[str]:
    """`count` words of 1 to `longest` characters, in mixed case; held-out words never occur among the others."""
    g = generator(seed, f"words/{role}")
    words: list[str] = []
    while len(words) < count:
        draws = torch.rand(4 * count, 16, generator=g).tolist()
        made = (_word(draw)[:longest] for draw in draws)
        words += [word for word in made if _is_held_out(word) == held_out]
    return words[:count]


def _word(draw: Sequence[float]) -> str:
    """One word from 16 numbers in [0, 1)."""
    kind, case, length, *rest = draw
    if kind < 0.1:
        return "".join(_pick("0123456789", r) for r in rest[: 1 + int(4 * length)])
    if kind < 0.2:
        return "".join(_pick(ALPHABET, r) for r in rest[: 1 + int(6 * length)])
    count = (1, 1, 2, 2, 2, 3)[int(6 * length)]  # words on signs are short
    parts = [_pick(some, r) for r, some in zip(rest[: 3 * count], (_BEGINS, _MIDDLES, _ENDS) * count, strict=True)]
    word = "".join(parts)
    return word.upper() if case < 0.5 else word.capitalize() if case < 0.75 else word


def _pick(some: Sequence[str], at: float) -> str:
    return some[int(at * len(some))]


def _is_held_out(word: str) -> bool:
    return hashlib.sha256(word.upper().encode()).digest()[0] % _TESTED == 0
