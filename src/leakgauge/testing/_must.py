"""What attacks and defenses alike must do; each function raises an AssertionError that says in one line what fails."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.settings import Settings


def hold(holds: bool, message: str) -> None:
    """Unlike `assert` it also works under `python -O`."""
    if not holds:
        raise AssertionError(message)


def be_close(what: str, first: Tensor | None, second: Tensor | None, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Equal to these tolerances, nan like nan; both None is equal too."""
    if first is None or second is None:
        hold(first is second, f"{what}: one is None and the other is not")
        return
    hold(first.shape == second.shape, f"{what}: shapes {tuple(first.shape)} and {tuple(second.shape)}")
    same = torch.isclose(first.double(), second.double(), rtol=rtol, atol=atol, equal_nan=True)
    apart = (first.double() - second.double()).abs()[~same]
    hold(bool(same.all()), f"{what}: entries differ, by {float(apart.max()) if len(apart) else 0.0:g} at most")


def be_equal(what: str, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """The same names, and under each the same numbers."""
    hold(before.keys() == after.keys(), f"{what}: other names, {sorted(before.keys() ^ after.keys())}")
    for name, tensor in before.items():
        be_close(f"{what}: {name}", tensor, after[name])


@contextmanager
def draw_from_own_generators(name: str) -> Iterator[None]:
    """A block that may not draw from the generators that everybody shares, nor seed them."""

    def states() -> dict[str, object]:
        numpys = np.random.get_state(legacy=False)["state"]
        shared = torch.get_rng_state().tolist(), (numpys["key"].tolist(), numpys["pos"]), random.getstate()
        return dict(zip(("torch", "NumPy", "Python"), shared, strict=True))

    torch.rand(1), np.random.rand(), random.random()  # an earlier run may have left them as this one will
    before = states()
    yield
    for library, state in states().items():
        same = state == before[library]
        hold(same, f"{name}: draws from {library}'s global generator; use leakgauge.engine.randomness")


def describe_itself(thing: type[Settings]) -> None:
    """A name, a summary of one line, a paper, an example, and help for each field."""
    name = getattr(thing, "name", thing.__name__)
    for part in ("name", "summary", "paper"):
        hold(bool(getattr(thing, part, "")), f"{thing.__name__}: {part} is missing; set it in the class body")
    hold(name == name.lower(), f"{name}: a name has no capital letters")
    hold("\n" not in thing.summary, f"{name}: the summary is longer than one line")
    hold("Example:" in (thing.__doc__ or ""), f"{name}: the docstring has no line that starts with 'Example:'")
    for field in dataclasses.fields(thing):
        hold(bool(field.metadata.get("help")), f"{name}: {field.name} has no help; declare it with setting(...)")


def survive_writing(made: Settings) -> None:
    """Written as text or as JSON and read again, it is the same."""
    from_text = type(made).from_text(made.spec.partition(":")[2])
    hold(from_text == made, f"{made.name}: written as {made.spec!r} and read again it is another")
    from_json = type(made).from_mapping(json.loads(json.dumps(made.as_dict())))
    hold(from_json == made, f"{made.name}: written as JSON and read again it is another")


def leave_model_alone(name: str, model: nn.Module, before: Mapping[str, Tensor]) -> None:
    """Its parameters and buffers as they were, and no gradient left in it."""
    be_equal(f"{name} changes the model it is given", before, model.state_dict())
    hold(all(p.grad is None for p in model.parameters()), f"{name} leaves gradients in the model it is given")
    hold(all(p.requires_grad for p in model.parameters()), f"{name} freezes the model it is given")
