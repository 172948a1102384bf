"""The report as JSON that others may rely on, and back again without loss."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from leakgauge.errors import BadInput, LeakgaugeError, Unreadable
from leakgauge.reading.sealed import DIGEST, check_digest, with_digest
from leakgauge.types import AuditReport


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
    return BadInput(
        "report JSON", allowed="as Leakgauge writes it", got=f"this: {got}", do="run the audit again to write it anew"
    )


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
