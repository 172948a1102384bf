"""A figure on a paper's page is the one its recipe measured; a place that does not exist stops the build."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from leakgauge.errors import BadInput
from leakgauge.lab.reproduce import measured
from leakgauge.lab.reproduce.rendering import figure

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("paper_figures", DOCS / "paper_figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_figure_is_the_measured_one(pages):
    entries = measured.read(DOCS.parent / "results" / "wei2020cpl")
    entry = next(e for e in entries if e.place == ("2", "CPL", "CIFAR-10", "asr"))
    text = pages.filled("before {{wei2020cpl; 2; CPL; CIFAR-10; asr}} after")
    assert text == f"before {figure(entry)}, n = {entry.trials} after"


def test_a_figure_that_waits_says_so(pages, monkeypatch):
    monkeypatch.setattr(pages.measured, "read", lambda _: [])
    assert pages.figure_at("wei2020cpl; 2; CPL; CIFAR-10; asr") == "0.973, not measured yet"


@pytest.mark.parametrize(
    "place",
    ["wei2020cpl; 2; CPL", "wei2020cpl; 2; CPL; Mars; asr", "wei2020cpl; 2; CPL; CIFAR-10; psnr", "no; 1; a; b; c"],
)
def test_a_place_that_is_not_there_is_refused(pages, place):
    with pytest.raises(BadInput):
        pages.figure_at(place)


@pytest.mark.parametrize("page", sorted((DOCS / "papers").glob("*.md")), ids=lambda p: p.stem)
def test_every_place_on_a_page_exists_and_its_links_lead_somewhere(pages, page):
    text = page.read_text(encoding="utf-8")
    assert "{{" not in pages.filled(text)
