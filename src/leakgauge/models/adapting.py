"""A user's own model behind the one form in which attacks search: (N, *shape) in [0, 1] in, a tensor out.

The model keeps its class's methods and the names of its parameters. Called with flat samples it takes them apart into
its own inputs (several, whole numbers, any range); called with its own inputs, as the user's training does, it takes
those. Of what it returns the logits are taken.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from leakgauge.engine.soft_categories import SoftCategories
from leakgauge.types import CATEGORIES, MASK, DataSpec

OUTPUT_NAMES = ("logits", "prediction_logits", "output", "out", "pred", "predictions")


class Adapted(nn.Module):
    """What `adapted` puts before the user's own class."""

    _leakgauge_spec: DataSpec

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        spec = self._leakgauge_spec
        one = args[0] if len(args) == 1 and not kwargs else None
        if not isinstance(one, Tensor) or tuple(one.shape[1:]) != spec.shape or not one.is_floating_point():
            return super().forward(*args, **kwargs)
        if not spec.parts:
            return output_of(super().forward(one))
        pieces = spec.split(one)
        values = {part.name: part.relaxed(pieces[part.name]) for part in spec.parts}
        soft = [part.name for part in spec.parts if part.kind == CATEGORIES]
        with SoftCategories([values[name] for name in soft]) as mode:
            given = values | dict(zip(soft, mode.numbers, strict=True))
            given |= {p.name: given[p.name] > 0.5 for p in spec.parts if p.kind == MASK}
            first = spec.parts[0].name
            return output_of(super().forward(given[first]) if len(given) == 1 else super().forward(**given))


def adapted(model: nn.Module, spec: DataSpec) -> nn.Module:
    """The same model, which also takes samples as attacks search them."""
    if isinstance(model, Adapted):
        return model
    cls = type(model)
    model.__class__ = type(cls.__name__, (Adapted, cls), {"__module__": cls.__module__})
    vars(model)["_leakgauge_spec"] = spec
    return model


def as_written(model: nn.Module) -> nn.Module:
    """The user's own model without what takes samples apart before it, for those who read how it is written."""
    if not isinstance(model, Adapted):
        return model
    bare = copy.copy(model)
    bare.__class__ = type(model).__mro__[2]  # behind the class that `adapted` made, and `Adapted`
    return bare


def takes_apart(model: nn.Module) -> bool:
    """Does something stand between a sample as attacks search it and the model's first layer?"""
    return isinstance(model, Adapted) and bool(model._leakgauge_spec.parts)


def output_of(made: Any) -> Any:
    """The tensor that a loss is taken of: the output itself, its logits, or the first of several."""
    if isinstance(made, Tensor):
        return made
    for name in OUTPUT_NAMES:
        found = made.get(name) if isinstance(made, dict) else getattr(made, name, None)
        if isinstance(found, Tensor):
            return found
    some = made.values() if isinstance(made, dict) else made if isinstance(made, tuple | list) else ()
    return next((value for value in some if isinstance(value, Tensor) and value.is_floating_point()), made)


def taken_back(model: nn.Module) -> tuple[nn.Module, DataSpec | None]:
    """The model as its author's own training takes it, and what `adapted` knew of its samples; `model` is changed."""
    if not isinstance(model, Adapted):
        return model, None
    spec = vars(model).pop("_leakgauge_spec")
    model.__class__ = type(model).__bases__[1]
    return model, spec
