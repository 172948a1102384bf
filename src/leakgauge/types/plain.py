"""Frozen dataclasses from plain values, as JSON has them: the types of the fields say what is allowed."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def read(kind: Any, value: Any, where: str) -> Any:
    """`value` as a `kind`: a dataclass, a tuple or mapping of such, or a scalar, each perhaps None.

    `where` is the place in the document ("report.findings[3].trial"). What does not fit raises ValueError and names it.
    """
    kind, optional, origin, inner = _shape(kind)
    if value is None and optional:
        return None
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} is {_shown(value)}, not a list")
        return tuple([read(inner, item, f"{where}[{i}]") for i, item in enumerate(value)])
    if origin is Mapping:
        return {name: read(inner, item, f"{where}.{name}") for name, item in _mapping(value, where).items()}
    if origin is dataclass:
        return _dataclass(kind, _mapping(value, where), where)
    if not _fits(kind, value):
        raise ValueError(f"{where} is {_shown(value)}, not {_WORDS[kind]}")
    return value


@functools.cache
def _shape(kind: Any) -> tuple[Any, bool, Any, Any]:
    """The type without `| None`, whether it had that, what it is (tuple, Mapping, dataclass), and what that holds."""
    options = typing.get_args(kind)
    if NoneType in options:
        plain, _, origin, inner = _shape(next(o for o in options if o is not NoneType))
        return plain, True, origin, inner
    if dataclasses.is_dataclass(kind):
        return kind, False, dataclass, None
    origin = typing.get_origin(kind)
    return kind, False, origin, options[-1] if origin is Mapping else options[0] if origin is tuple else None


def _dataclass(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    if hasattr(kind, "from_mapping"):  # it checks its own fields
        return kind.from_mapping(values)
    hints, needed = fields_of(kind), _needed(kind)
    if missing := [name for name in needed if name not in values]:
        raise ValueError(f"{where} has no key {missing[0]!r}")
    if unknown := [name for name in values if name not in hints]:
        raise ValueError(f"{where} has the unknown key {unknown[0]!r}")
    return kind(**{name: read(hints[name], value, f"{where}.{name}") for name, value in values.items()})


@functools.cache
def fields_of(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields by name, in their order."""
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


@functools.cache
def _needed(kind: Any) -> tuple[str, ...]:
    """Fields without a default."""
    without = dataclasses.MISSING
    return tuple(f.name for f in dataclasses.fields(kind) if f.default is without and f.default_factory is without)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is {_shown(value)}, not an object")
    return value


def _fits(kind: type, value: Any) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
