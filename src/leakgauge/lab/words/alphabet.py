"""Words as indices and back: 36 letters and digits without case, and the blank of CTC as the last index."""

from __future__ import annotations

import string
from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.errors import BadInput

ALPHABET = string.digits + string.ascii_uppercase
BLANK = len(ALPHABET)  # the last index, as in the released code
_INDEX = {character: i for i, character in enumerate(ALPHABET)}


def encoded(words: Sequence[str], longest: int) -> tuple[Tensor, Tensor]:
    """(N, longest) indices, blanks behind each word's end, and (N,) lengths."""
    codes, lengths = torch.full((len(words), longest), BLANK), torch.tensor([len(w) for w in words])
    for row, word in enumerate(words):
        upper = word.upper()
        if not 0 < len(upper) <= longest or any(c not in _INDEX for c in upper):
            raise BadInput(
                "word", allowed=f"1 to {longest} letters A to Z and digits", got=repr(word), do="leave it out"
            )
        codes[row, : len(upper)] = torch.tensor([_INDEX[c] for c in upper])
    return codes, lengths


def greedy(logits: Tensor, longest: int) -> Tensor:
    """(N, steps, 37) -> (N, longest) indices: the best of each step, repeats and blanks taken out; cut at `longest`.

    A longer reading keeps its first characters, and a mark in its last column makes it unequal to every word.
    """
    best = logits.argmax(2)  # (N, steps)
    before = torch.nn.functional.pad(best[:, :-1], (1, 0), value=BLANK)
    kept = (best != BLANK) & (best != before)
    place = kept.cumsum(1) - 1  # where each kept character goes
    fits = kept & (place < longest)
    out = torch.full((len(best), longest + 1), BLANK, device=best.device)
    out.scatter_(
        1, torch.where(fits, place, longest), torch.where(fits, best, BLANK)
    )  # characters that do not fit go to the extra column
    out = out[:, :longest].contiguous()
    out[:, -1] = torch.where(kept.sum(1) > longest, BLANK + 1, out[:, -1])
    return out


def decoded(codes: Tensor) -> list[str]:
    """(N, longest) -> words."""
    return ["".join(ALPHABET[i] for i in row if i < BLANK) for row in codes.tolist()]
