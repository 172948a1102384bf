"""Every project that Leakgauge brings along names its licence, one that was weighed, and the page tells it."""

from __future__ import annotations

import importlib
from importlib.metadata import Distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def licences(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("licences")


def test_the_core_stands_under_permissive_licences_alone(licences):
    core = licences.core()
    assert len(core) > len(licences.declared()[""])
    for name, project in core.items():
        assert project, f"{name} is not installed"
        told = [term for text in licences.licence(project) for term in licences.terms(text)]
        assert told, f"{name} names no licence"
        assert set(told) <= licences.PERMISSIVE, f"{name}: {told}"


def test_what_is_not_permissive_among_the_extras_is_named_one_by_one(licences):
    for name, project in licences.extras().items():
        if project:
            told = licences.licence(project)
            assert told, f"{name} names no licence"
            if told != (licences.OTHER.get(name),):
                assert {term for text in told for term in licences.terms(text)} <= licences.PERMISSIVE, (
                    f"{name}: {told}"
                )


@pytest.mark.parametrize("part", ["core", "extras"])
def test_the_page_tells_what_is_installed(licences, part):
    rows = licences.PAGE.read_text(encoding="utf-8").partition(f"<!-- licences: {part} -->")[2].partition("<!-- end")[0]
    for name, project in getattr(licences, part)().items():
        if project:
            assert f"| {name} | {', '.join(licences.licence(project))} |\n" in rows, "run tools/licences.py"


class Fake(Distribution):
    def __init__(self, *lines: str) -> None:
        self.lines = ("Metadata-Version: 2.4", "Name: fake", *lines)

    def read_text(self, filename: str) -> str | None:
        return "\n".join(self.lines) + "\n\n" if filename == "METADATA" else None

    def locate_file(self, path):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["License-Expression: GPL-3.0-only", "Classifier: License :: OSI Approved :: MIT License"], ("GPL-3.0-only",)),
        (["License: Apache 2.0"], ("Apache-2.0",)),
        (["License: Copyright (c) somebody"], ()),
        (["License: GPL", "Classifier: License :: OSI Approved :: BSD License"], ("BSD License",)),
        (["Classifier: License :: OSI Approved :: MIT License"], ("MIT",)),
        (["Classifier: Topic :: Security"], ()),
    ],
)
def test_a_licence_is_read_from_the_field_that_says_it_best(licences, lines, told):
    assert licences.licence(Fake(*lines)) == told
