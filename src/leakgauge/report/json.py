"""The report as JSON that others may rely on, and back again without loss; its scenario as TOML."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from leakgauge.errors import BadInput, LeakgaugeError, Unreadable
from leakgauge.reading.sealed import DIGEST, check_digest, with_digest
from leakgauge.types import AuditReport, Scenario


def to_json(report: AuditReport) -> str:
    """Keys in the order the report has them; plain ASCII, so it survives every encoding."""
    plain = report.as_dict()
    try:
        return json.dumps(with_digest(plain), indent=2, allow_nan=False) + "\n"
    except ValueError as error:
        where = _not_finite(plain, "report")
        raise LeakgaugeError(f"{where or 'the report'} cannot be written as JSON: {error}") from None


def from_json(text: str) -> AuditReport:
    """The report that `to_json` wrote; anything else is refused in one line."""
    try:
        plain = json.loads(text, parse_constant=_refuse_constant)
        if not isinstance(plain, dict):
            raise TypeError(f"a {type(plain).__name__} at the top, not an object")
        check_digest(plain)
        return AuditReport.from_dict({name: value for name, value in plain.items() if name != DIGEST})
    except BadInput:
        raise
    except Unreadable as error:
        raise _malformed(str(error)) from None
    except KeyError as error:
        raise _malformed(f"no key {error}") from None
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise _malformed(str(error)) from None


def _malformed(got: str) -> BadInput:
    do = "run the audit again to write it anew"
    return BadInput("report JSON", allowed="as Leakgauge writes it", got=f"this: {got}", do=do)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _not_finite(value: Any, where: str) -> str | None:
    """The path to the first number that JSON cannot hold, so that its maker can be found."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where} = {value}"
    if isinstance(value, Mapping):
        inner = [(f"{where}.{key}", v) for key, v in value.items()]
    elif isinstance(value, (list, tuple)):
        inner = [(f"{where}[{i}]", v) for i, v in enumerate(value)]
    else:
        return None
    return next((found for path, v in inner if (found := _not_finite(v, path))), None)


def scenario_toml(scenario: Scenario) -> str:
    """Every field, also those at their defaults: defaults may change, a repeated run must not.

    TOML has no null, so a field that is None is left out, which reads back as None.
    """
    plain = {key: value for key, value in scenario.as_dict().items() if value is not None}
    tables = {key: plain.pop(key) for key in list(plain) if isinstance(plain[key], Mapping)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_value(value)}" for key, value in table.items() if value is not None]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):  # JSON's escapes are a subset of TOML's, except that TOML also wants DEL escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)  # Python's int and float spellings, inf and nan included, are TOML's too
