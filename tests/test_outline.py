"""The outline of the catalogue says what the catalogue says, without importing what is in it."""

import subprocess
import sys

import pytest

from leakgauge import catalog, outline

WITHOUT_TORCH = """
import sys
from leakgauge import catalog, outline
for kind in catalog.FOLDERS:
    assert outline.of(kind), kind
heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize("kind", catalog.FOLDERS)
def test_the_source_text_says_what_the_things_say(kind):
    assert outline.read(kind) == outline.imported(kind)
    assert list(outline.read(kind)) == list(catalog.find(kind))


def test_nothing_heavy_is_imported_for_any_kind():
    ended = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_an_attack_comes_with_what_it_needs_and_with_the_fields_of_its_bases():
    dlg = outline.read("attacks")["dlg"]
    assert dlg.needs == ("input-spec", "local-training", "num-samples")
    fields = {field.name: field for field in dlg.fields}
    assert fields["steps"].default == 300
    assert fields["steps"].help


def test_what_the_text_does_not_tell_is_asked_of_the_catalogue(monkeypatch):
    def computed(kind):
        raise outline.Unclear("name = word()")

    monkeypatch.setattr(outline, "read", computed)
    outline.of.cache_clear()
    assert outline.of("encryptions") == outline.imported("encryptions")
    outline.of.cache_clear()


# --- a package of its own, written in the ways that modules may be written -----------------------------------------

BASE = """
from typing import Any, ClassVar
from torch import nn
from leakgauge.settings import Settings, setting

FIRST, LAST = WHICH = ("first", "last")

def which(default: str = FIRST) -> Any:
    field: str = setting(default, f"which of {FIRST} and {LAST}")
    return field

class Base(Settings):
    rate: float = setting(-0.5, "how fast")
    which: str = which(LAST)
"""
THINGS = """
from leakgauge.things._base import FIRST, Base, which
from leakgauge.settings import setting

class Thing(Base):
    name: ClassVar[str] = "thing"
    summary = f"the {FIRST} thing"
    paper: ClassVar[str] = "none"
    which: str = which(FIRST)
    more: int = setting(1, "and more")

class NotListed(Base):
    summary: ClassVar[str] = "has no name"

class _Hidden(Thing):
    name: ClassVar[str] = "hidden"

class Module(nn.Module):
    name = "no setting"

WORD = open("never read")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder beside ours, for things of its own kind."""
    settings = outline._ROOT / "settings.py"
    (tmp_path / "things").mkdir()
    (tmp_path / "settings.py").write_text(settings.read_text())
    (tmp_path / "things" / "__init__.py").write_text("")
    (tmp_path / "things" / "_base.py").write_text(BASE)
    monkeypatch.setattr(outline, "_ROOT", tmp_path)
    monkeypatch.setitem(catalog.FOLDERS, "things", ("things",))
    outline._Source.of.cache_clear()
    yield tmp_path / "things"
    outline._Source.of.cache_clear()


def test_names_joined_texts_and_functions_that_return_a_setting_are_followed(package):
    (package / "thing.py").write_text(THINGS)
    (thing,) = outline.read("things").values()
    assert (thing.name, thing.summary, thing.paper) == ("thing", "the first thing", "none")
    told = [(field.name, field.default, field.help) for field in thing.fields]
    assert told == [("rate", -0.5, "how fast"), ("which", "first", "which of first and last"), ("more", 1, "and more")]


@pytest.mark.parametrize(
    "line",
    ["summary = word()", "more: int = 3", "more: int", "summary = ELSEWHERE", "summary = WORD", "more: int = odd()"],
)
def test_what_is_computed_is_not_guessed(package, line):
    odd = "\ndef odd():\n    if WORD:\n        return setting(1, '')\n"
    (package / "thing.py").write_text(THINGS.replace('paper: ClassVar[str] = "none"', line) + odd)
    with pytest.raises(outline.Unclear):
        outline.read("things")
