"""Settings are fields: one definition gives the constructor, the flag, the TOML key and the JSON.

A class whose hyper-parameters a user may set derives from `Settings` and declares each with
`setting(default, help, ...)`. The checks run here, once, for all of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import operator
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from leakgauge.errors import BadInput

# Settings that are a flag of their own: their fields are written behind it, without a name before them.
_FLAGS = {"local": "--local", "partition": "--partition", "training": "--training", "federation": "--cost"}
_WORDS: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_BOUNDS = {"low": ("at least", operator.ge), "above": ("above", operator.gt), "high": ("at most", operator.le)}


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """A checked dataclass field. `low` and `high` are inclusive, `above` is an exclusive lower bound."""
    metadata = {"help": help, "low": low, "above": above, "high": high, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Base of everything that is configured by name and fields: attacks, defenses, models."""

    name: ClassVar[str]  # as on the command line
    summary: ClassVar[str]  # one line

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = check(f"{self.name}: {field.name}", getattr(self, field.name), type(self), field)
            object.__setattr__(self, field.name, value)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build from TOML, JSON or parsed flags; unknown keys are refused, the nearest is suggested."""
        known = {f.name for f in dataclasses.fields(cls)}
        for key in values:
            if key not in known:
                raise unknown_name(f"field of {cls.name}", key, known)
        return cls(**values)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Build from `field=value,field=value`; the empty text gives the defaults."""
        values: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            key, sep, value = part.partition("=")
            if not sep:
                what, do = f"{cls.name}: setting {part!r}", f"for example {cls.example()}"
                raise BadInput(what, allowed="written field=value", got=repr(part), do=do)
            values[key.strip().replace("-", "_")] = value.strip()
        return cls.from_mapping(values)

    @classmethod
    def example(cls) -> str:
        """The name with its first field at its default, as one writes it on the command line."""
        for field in dataclasses.fields(cls):
            written = f"{field.name}={field.default}"
            return f"{_FLAGS[cls.name]} {written}" if cls.name in _FLAGS else f"{cls.name}:{written}"
        return cls.name

    def with_fields(self, **values: Any) -> Self | None:
        """A copy with these fields changed; None if it does not have them all."""
        return dataclasses.replace(self, **values) if values.keys() <= self.as_dict().keys() else None

    def as_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @property
    def spec(self) -> str:
        """Name and the fields that differ from their defaults: `name:field=0.01`."""
        changed = [
            f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self) if getattr(self, f.name) != f.default
        ]
        return f"{self.name}:{','.join(changed)}" if changed else self.name


def check(what: str, value: Any, owner: type, field: dataclasses.Field[Any]) -> Any:
    """Convert `value` to the field's type and hold it to the field's bounds."""
    meta = field.metadata
    if value is None:
        if type(None) not in typing.get_args(_hints(owner)[field.name]):
            raise BadInput(what, allowed="given", got=None, do="leave it out for its default")
        return None
    value = _convert(what, value, plain_type(owner, field.name))
    if not meta:
        return value
    if meta["choices"] and value not in meta["choices"]:
        near = difflib.get_close_matches(str(value), meta["choices"], n=1)
        do = f"did you mean {near[0]!r}?" if near else "choose one of these"
        raise BadInput(what, allowed=f"one of {', '.join(meta['choices'])}", got=repr(value), do=do)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(what, allowed="a finite number", got=value, do="give a finite number")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        bounds = [(b, *rule) for b, rule in _BOUNDS.items() if meta[b] is not None]
        if not all(holds(value, meta[bound]) for bound, _, holds in bounds):
            allowed = " and ".join(f"{words} {meta[bound]:g}" for bound, words, _ in bounds)
            raise BadInput(what, allowed=allowed, got=value, do="choose a value in that range")
    return value


def plain_type(owner: type, field_name: str) -> type:
    """The field's type without `| None`: one of bool, int, float, str."""
    hint = _hints(owner)[field_name]
    options = [t for t in typing.get_args(hint) if t is not type(None)]
    plain: type = options[0] if options and typing.get_origin(hint) is not tuple else hint
    return plain


@functools.cache
def _hints(owner: type) -> dict[str, Any]:
    """Kept, because reading them takes most of the time that it takes to build an instance."""
    return typing.get_type_hints(owner)


def unknown_name(what: str, got: str, known: typing.Iterable[str]) -> BadInput:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = [name for name in names if sorted(name) == sorted(got)]  # letters that changed places
    near = near or difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    do = f"did you mean {near[0]!r}?" if near else "choose one of these"
    if "," in got and {part.strip() for part in got.split(",")} <= set(names):
        do = f"put spaces between several: {got.replace(',', ' ')!r}"
    return BadInput(what, allowed=f"one of {', '.join(names) or '(none)'}", got=repr(got), do=do)


def _convert(what: str, value: Any, kind: type) -> Any:
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "1", "0"):
        return value.lower() in ("true", "yes", "1")
    if (kind in (bool, str) and isinstance(value, kind)) or kind not in _WORDS:
        return value
    if kind in (int, float) and not isinstance(value, bool):
        try:
            number = float(value)
            if kind is float:
                return number
            if number.is_integer():
                return int(value) if not isinstance(value, str) else int(number)
        except (TypeError, ValueError, OverflowError):
            pass
    do = "write" if kind is bool else "give"
    raise BadInput(what, allowed=_WORDS[kind], got=repr(value), do=f"{do} {_WORDS[kind]}")
