"""`leakgauge list`: everything of a kind, for people and for programs."""

from __future__ import annotations

import dataclasses

import pytest

from leakgauge import catalog
from leakgauge.lab import recipes
from leakgauge.types import THREAT_MODELS

KINDS = ("attacks", "defenses", "aggregators", "encryptions", "models", "data", "metrics", "threat-models", "recipes")


def names_of(kind):
    if kind == "recipes":
        return list(recipes.find())
    return list(THREAT_MODELS) if kind == "threat-models" else list(catalog.find(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_json_has_one_row_each_with_name_summary_and_paper(leakgauge, kind):
    outcome = leakgauge("list", kind, "--json")
    assert outcome.code == 0
    assert [row["name"] for row in outcome.json] == names_of(kind)
    for row in outcome.json:
        assert row["summary"]
        assert row["paper"]


def test_recipes_are_read_as_the_lab_finds_them(leakgauge):
    rows = [(row["name"], row["summary"], row["paper"]) for row in leakgauge("list", "recipes", "--json").json]
    assert rows == [(name, recipe.summary, recipe.paper) for name, recipe in recipes.find().items()]


@pytest.mark.parametrize("kind", ["attacks", "defenses", "aggregators", "encryptions", "models"])
def test_what_can_be_set_comes_with_its_fields(leakgauge, kind):
    for row in leakgauge("list", kind, "--json").json:
        known = dataclasses.fields(catalog.get(kind, row["name"]))
        assert [(f["name"], f["default"], f["help"]) for f in row["fields"]] == [
            (f.name, f.default, f.metadata["help"]) for f in known
        ]


def test_attacks_say_what_they_need(leakgauge):
    rows = {row["name"]: row for row in leakgauge("list", "attacks", "--json").json}
    assert rows["dlg"]["needs"] == ["input-spec", "local-training", "num-samples"]
    assert rows["mean-image"]["needs"] == ["num-samples", "public-data"]


@pytest.mark.parametrize("kind", KINDS)
def test_table_shows_every_name_on_a_line_of_its_own(leakgauge, kind):
    lines = leakgauge("list", kind).out.splitlines()
    assert [line.split()[0] for line in lines[1:] if line[:1].strip()] == names_of(kind)


def test_everything_at_once(leakgauge):
    assert leakgauge("list", "--json").json.keys() == set(KINDS)
    shown = leakgauge("list").out
    assert all(kind.upper() in shown for kind in KINDS)
