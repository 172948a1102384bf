"""Tensors that an attacker leaves out of the comparison, because a defence has changed them.

What is left out takes no part at all: neither in a distance nor in the norms of a cosine.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.problem import Puzzle, only
from leakgauge.models._bottleneck import VariationalBottleneck
from leakgauge.models._key_lock import locks_in
from leakgauge.models._several_rounds import FIRST_ROUND, SeveralRounds
from leakgauge.models.structure import last_listed_linear
from leakgauge.settings import setting, unknown_name

LAST = "last"  # the weight of the last linear layer, whatever its name
BOTTLENECK = "bottleneck"  # a variational bottleneck and the linear layer behind it
LOCK = "lock"  # everything the model lists in front of a locked normalisation
_WORDS = (LAST, BOTTLENECK, LOCK)
SEPARATOR = "+"


def skip_setting() -> str:
    """The field by which an attack is told."""
    field: str = setting(
        "",
        "tensors that are not compared: names of tensors or layers with + between them, last for the last weight, "
        "bottleneck for a variational bottleneck and the layer behind it, lock for all before a locked normalisation",
    )
    return field


def muted(puzzle: Puzzle, skip: str) -> Puzzle:
    """The same puzzle without the tensors that `skip` names."""
    if not skip:
        return puzzle
    left_out = muted_names(puzzle.model, puzzle.observed, skip)
    kept = [name for name in puzzle.observed if name not in left_out]
    if not kept:
        raise BadInput(
            "skip",
            allowed="some of the tensors that were shared",
            got=f"all of them ({skip!r})",
            do="leave one to compare",
        )
    return only(puzzle, kept)


def muted_names(model: nn.Module, tensors: Iterable[str], skip: str) -> set[str]:
    """The tensors that `skip` means: each by its own name or by that of a layer that holds it."""
    names = list(tensors)
    found: set[str] = set()
    for word in skip.split(SEPARATOR):
        meant = _special(model, word) if word in _WORDS else [word]
        inside = {name for name in names if any(name == m or name.startswith(f"{m}.") for m in meant)}
        if not inside and word not in _WORDS:
            raise unknown_name("skip", word, [*_WORDS, *names])
        found |= inside
    return found


def _special(model: nn.Module, word: str) -> list[str]:
    """The tensors or layers that the word stands for in this model."""
    if word == LOCK:
        return _before_lock(model)
    last = last_listed_linear(model)
    if last is None:
        raise NotApplicable(f"skip={word} needs a model with an nn.Linear layer; this one has none")
    if word == LAST:
        return [f"{last}.weight" if last else "weight"]
    found = [name for name, module in model.named_modules() if isinstance(module, VariationalBottleneck)]
    if not found:
        raise NotApplicable("skip=bottleneck needs a model with a variational bottleneck; this one has none")
    return [*found, last]


def _before_lock(model: nn.Module) -> list[str]:
    """Names of the layers that the model lists in front of its first locked normalisation, and of that layer."""
    locks = locks_in(model)
    if not locks:
        raise NotApplicable("skip=lock needs a model with a locked normalisation; this one has none")
    names = [name for name, module in model.named_modules() if next(module.parameters(recurse=False), None) is not None]
    order = [name for name, _ in model.named_modules()]
    found = [name for name in names if order.index(name) < order.index(next(iter(locks)))]
    if isinstance(model, SeveralRounds):  # the lock is listed in the first round; the others have the same layers
        return [name.replace(FIRST_ROUND, each, 1) for each in model.names for name in found]
    return found
