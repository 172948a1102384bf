"""How a check says that something does not hold, and what attacks and defenses have in common."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.settings import Settings

MODELS = ("lenet-dlg:filters=4", "mlp:hidden=16", "vit:embedding=24,depth=1")


def require(holds: bool, message: str) -> None:
    """Unlike `assert` it also works under `python -O`."""
    if not holds:
        raise AssertionError(message)


def require_close(what: str, first: Tensor | None, second: Tensor | None, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Equal to these tolerances, nan like nan; both None is equal too."""
    if first is None or second is None:
        require(first is second, f"{what}: one is None and the other is not")
        return
    require(first.shape == second.shape, f"{what}: shapes {tuple(first.shape)} and {tuple(second.shape)}")
    same = torch.isclose(first.double(), second.double(), rtol=rtol, atol=atol, equal_nan=True)
    apart = (first.double() - second.double()).abs()[~same]
    require(bool(same.all()), f"{what}: entries differ, by {float(apart.max()) if len(apart) else 0.0:g} at most")


def require_equal_tensors(what: str, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """The same names, and under each the same numbers."""
    require(before.keys() == after.keys(), f"{what}: other names, {sorted(before.keys() ^ after.keys())}")
    for name, tensor in before.items():
        require_close(f"{what}: {name}", tensor, after[name])


@contextmanager
def global_randomness_untouched(name: str) -> Iterator[None]:
    """A block that may not draw from the generators that everybody shares, nor seed them."""
    torch.rand(1), np.random.rand(), random.random()  # an earlier run may have left them as this one will
    before = _generators()
    yield
    for library, state in _generators().items():
        same = state == before[library]
        require(same, f"{name}: draws from {library}'s global generator; use leakgauge.engine.randomness")


def _generators() -> dict[str, object]:
    """Where the generators that everybody shares stand."""
    numpys = np.random.get_state(legacy=False)["state"]
    return {
        "torch": torch.get_rng_state().tolist(),
        "NumPy": (numpys["key"].tolist(), numpys["pos"]),
        "Python": random.getstate(),
    }


def require_description(thing: type[Settings]) -> None:
    """A name, a summary of one line, a paper, an example, and help for each field."""
    name = getattr(thing, "name", thing.__name__)
    for part in ("name", "summary", "paper"):
        require(bool(getattr(thing, part, "")), f"{thing.__name__}: {part} is missing; set it in the class body")
    require(name == name.lower(), f"{name}: a name has no capital letters")
    require("\n" not in thing.summary, f"{name}: the summary is longer than one line")
    require("Example:" in (thing.__doc__ or ""), f"{name}: the docstring has no line that starts with 'Example:'")
    for field in dataclasses.fields(thing):
        require(bool(field.metadata.get("help")), f"{name}: {field.name} has no help; declare it with setting(...)")


def require_settings_survive(made: Settings) -> None:
    """Written as text or as JSON and read again, it is the same."""
    read: Any = type(made).from_text(made.spec.partition(":")[2])
    require(read == made, f"{made.name}: written as {made.spec!r} and read again it is another")
    read = type(made).from_mapping(json.loads(json.dumps(made.as_dict())))
    require(read == made, f"{made.name}: written as JSON and read again it is another")


def require_untouched_model(name: str, model: nn.Module, before: Mapping[str, Tensor]) -> None:
    """Its parameters and buffers as they were, and no gradient left in it."""
    require_equal_tensors(f"{name} changes the model it is given", before, model.state_dict())
    require(all(p.grad is None for p in model.parameters()), f"{name} leaves gradients in the model it is given")
    require(all(p.requires_grad for p in model.parameters()), f"{name} freezes the model it is given")
