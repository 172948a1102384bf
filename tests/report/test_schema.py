"""The JSON Schema in the package is that of the dataclasses, and every report is valid under it."""

from __future__ import annotations

import dataclasses
import importlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from leakgauge import Scenario, run_audit
from leakgauge.report import from_json, to_json

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(files("leakgauge").joinpath("report/report.schema.json").read_text(encoding="utf-8"))


def strict(part: Any) -> Any:
    """The schema without its leave to add keys: what is written must be described."""
    if isinstance(part, list):
        return [strict(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {"additionalProperties": False} if part.get("type") == "object" and "properties" in part else {}
    return closed | {name: strict(value) for name, value in part.items()}


def faults(plain: Any) -> list[str]:
    found = jsonschema.Draft202012Validator(strict(SCHEMA)).iter_errors(plain)
    return [f"{error.json_path}: {error.message}" for error in found]


def test_the_schema_is_that_of_the_dataclasses(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    made = importlib.import_module("report_schema")
    assert made.text() == made.FILE.read_text(encoding="utf-8"), "run: python tools/report_schema.py"


def test_the_schema_is_a_schema_and_says_what_every_key_is():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    parts = {"report": SCHEMA} | SCHEMA["$defs"]
    unsaid = [
        f"{p}.{key}" for p, part in parts.items() for key, v in part["properties"].items() if not v["description"]
    ]
    assert not unsaid


@pytest.mark.parametrize(("kind", "shape"), [("image", (3, 8, 8)), ("tabular", (30,))])
def test_a_report_is_valid(make, kind, shape):
    assert faults(json.loads(to_json(make(kind, shape).report))) == []


def test_a_report_of_labels_alone_with_a_decoy_or_cut_short_is_valid(labels_only, with_control):
    for report in (labels_only, with_control.report, dataclasses.replace(labels_only, interrupted=True)):
        assert faults(json.loads(to_json(report))) == []


def test_an_audit_with_all_that_can_be_asked_for_is_valid():
    report, _ = run_audit(
        Scenario(
            data="digits",
            model="mlp:hidden=8",
            trials=2,
            attacks=("linear", "labels", "rgap"),
            defenses=("dp-sgd:sigma=4,q=0.01,rounds=16",),
            gate="ssim=0.5,confidence=0.95",
            ledger=True,
        ),
        triaged=True,
    )
    assert report.ledger
    assert report.triage
    assert report.verdict.configurations[1].upper.training
    assert faults(json.loads(json.dumps(report.as_dict(), allow_nan=False))) == []


def test_a_report_of_schema_1_is_valid_once_it_is_read():
    old = (Path(__file__).parent / "schema_1.json").read_text(encoding="utf-8")
    assert faults(json.loads(old)), "it is of another schema"
    assert faults(json.loads(to_json(from_json(old)))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), 1),
        (("findings", 0, "trial"), "0"),
        (("findings", 0, "records"), None),
        (("verdict", "configurations", 0, "lower"), []),
        (("verdict", "configurations", 0, "standing"), None),
        (("summary", 0, "psnr_mean_per_image"), 3.0),
        (("summary", 0, "success_rate", "records"), 1.5),
        (("flags", 0, "colour"), "red"),
    ],
)
def test_what_is_no_report_is_not_valid(made, path, value):
    plain = inner = json.loads(to_json(made.report))
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    assert len(faults(plain)) == 1
