"""Write the JSON Schema of a report from the dataclasses that it is made from: `python tools/report_schema.py`.

A field's type says what its key holds, the comment behind it says what that means; a setting's help does the same.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import textwrap
import tokenize
import typing
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from leakgauge.settings import Settings
from leakgauge.types import REPORT_SCHEMA, AuditReport, Interval, Summary
from leakgauge.types.plain import fields_of

FILE = Path(__file__).parents[1] / "src" / "leakgauge" / "report" / "report.schema.json"
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema() -> dict[str, Any]:
    """The whole of it, as JSON has it."""
    parts: dict[str, Any] = {}
    report = _of_dataclass(AuditReport, parts)
    before = {"schema": {"const": REPORT_SCHEMA, "description": "what the keys are called and mean"}}
    behind = {"digest": {"type": "string", "description": "SHA-256 of all else, in the file that an audit writes"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Leakgauge report, schema {REPORT_SCHEMA}",
        "description": report["description"],
        "type": "object",
        "properties": before | report["properties"] | behind,
        "required": ["schema", *report["required"]],
        "$defs": dict(sorted(parts.items())),
    }


def text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


def _of_dataclass(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    said = _comments(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        found = _of(fields_of(kind)[field.name], parts)
        if choices := field.metadata.get("choices"):
            found["enum"] = list(choices)
        about = field.metadata.get("help") or said.get(field.name)
        properties[field.name] = found | ({"description": about} if about else {})
    whole = {"type": "object", "description": inspect.cleandoc(kind.__doc__).splitlines()[0].rstrip(".")}
    if kind is Summary:  # a row holds its metrics beside its other keys, each named with its reduction
        del properties["metrics"]
        whole["additionalProperties"] = _of(Interval, parts)
    return whole | {"properties": properties, "required": _always_there(kind, properties)}


def _always_there(kind: Any, properties: Mapping[str, Any]) -> list[str]:
    """All keys, but for settings that are left out at their defaults."""
    return list(kind().as_dict()) if issubclass(kind, Settings) else list(properties)


def _of(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    options = typing.get_args(kind)
    if NoneType in options:
        found = _of(next(o for o in options if o is not NoneType), parts)
        plain = found.keys() == {"type"}
        return {"type": [found["type"], "null"]} if plain else {"anyOf": [found, {"type": "null"}]}
    if dataclasses.is_dataclass(kind):
        name = getattr(kind, "__name__", "")
        if name not in parts:
            parts[name] = {}  # a place, should it refer to itself
            parts[name] |= _of_dataclass(kind, parts)
        return {"$ref": f"#/$defs/{name}"}
    if typing.get_origin(kind) is tuple:
        return {"type": "array", "items": _of(options[0], parts)}
    if typing.get_origin(kind) is Mapping:
        return {"type": "object", "additionalProperties": _of(options[1], parts)}
    return {"type": _SCALARS[kind]}


def _comments(kind: Any) -> dict[str, str]:
    """Field -> the comment on its lines, or on the lines right above it."""
    lines: dict[int, str] = {}
    alone: set[int] = set()
    source = textwrap.dedent(inspect.getsource(kind))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = token.string.lstrip("# ")
            alone |= {token.start[0]} if token.line.strip().startswith("#") else set()
    found = {}
    (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            above = node.lineno - 1
            said = [lines[n] for n in own if n in lines] or ([lines[above]] if above in alone else [])
            found[node.target.id] = " ".join(said)
    return found


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
