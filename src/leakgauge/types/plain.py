"""Frozen dataclasses from plain values, as JSON has them: the types of the fields say what is allowed."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from types import NoneType
from typing import Any

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def read(kind: Any, value: Any, where: str) -> Any:
    """`value` as a `kind`: a dataclass, a tuple or mapping of such, or a scalar, each perhaps None.

    `where` is the place in the document ("report.findings[3].trial"). What does not fit raises ValueError and names it.
    """
    options = typing.get_args(kind)
    if NoneType in options:
        return None if value is None else read(next(o for o in options if o is not NoneType), value, where)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, _mapping(value, where), where)
    origin = typing.get_origin(kind)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} is {_shown(value)}, not a list")
        return tuple(read(options[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Mapping:
        return {name: read(options[1], item, f"{where}.{name}") for name, item in _mapping(value, where).items()}
    if not _fits(kind, value):
        raise ValueError(f"{where} is {_shown(value)}, not {_WORDS[kind]}")
    return value


def _dataclass(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    if hasattr(kind, "from_mapping"):  # it checks its own fields
        return kind.from_mapping(values)
    hints = fields_of(kind)
    needed = [f.name for f in dataclasses.fields(kind) if _has_no_default(f)]
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


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


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
