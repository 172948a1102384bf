"""A scenario as the TOML file that `leakgauge audit` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from leakgauge.types import Scenario


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
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)  # Python's int and float spellings, inf and nan included, are TOML's too


def _text(value: str) -> str:
    # JSON's escapes are a subset of TOML's, except that TOML also wants DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
