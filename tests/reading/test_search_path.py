"""A folder is looked in last, and only for code that lies in it."""

import importlib
import pickle
import subprocess
import sys

import pytest

from leakgauge.reading.search_path import look_here_last


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random.py").write_text("raise SystemExit(66)\n")
    (tmp_path / "beside_own_code.py").write_text("class Thing:\n    pass\n")
    (tmp_path / "own_code.py").write_text("import random\nfrom beside_own_code import Thing\n")
    yield tmp_path
    for name in ("own_code", "beside_own_code"):
        sys.modules.pop(name, None)


def asked_by(file, name="asker"):
    """What happens when code of that file imports what lies in the folder."""
    code = compile("import beside_own_code", str(file), "exec")
    exec(code, {"__name__": name})


def test_own_code_finds_what_lies_beside_it(folder):
    look_here_last()
    asked_by(folder / "own_code.py")
    assert "beside_own_code" in sys.modules


@pytest.mark.parametrize("where", ["lib/python3.11/site-packages/click/_compat.py", "dist-packages/a.py"])
def test_a_library_does_not(folder, where):
    look_here_last()
    with pytest.raises(ModuleNotFoundError):
        asked_by(folder / where)  # also of an environment that lies in the folder


def test_our_own_code_does_also_where_it_is_installed(folder):
    look_here_last()
    asked_by(folder / "lib/python3.11/site-packages/leakgauge/catalog.py", "leakgauge.catalog")
    assert "beside_own_code" in sys.modules


def test_nor_does_the_standard_library(folder):
    look_here_last()
    with pytest.raises(ModuleNotFoundError):
        asked_by(subprocess.__file__)
    with pytest.raises(ModuleNotFoundError):
        asked_by("<frozen runpy>")


def test_what_reads_pickles_finds_the_classes_of_own_code(folder):
    look_here_last()
    asked_by(folder / "own_code.py")
    thing = pickle.dumps(sys.modules["beside_own_code"].Thing())
    del sys.modules["beside_own_code"]
    asked_by(pickle.__file__, "pickle")
    assert type(pickle.loads(thing)).__module__ == "beside_own_code"


def test_nothing_there_replaces_what_is_installed(folder, monkeypatch):
    look_here_last()
    for name in ("random", "own_code"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    exec(compile("import own_code", str(folder / "mine.py"), "exec"), {"__name__": "mine"})
    assert importlib.import_module("random").__file__ != str(folder / "random.py")


def test_a_folder_is_looked_in_once(folder):
    look_here_last()
    before = len(sys.meta_path)
    look_here_last()
    look_here_last(str(folder))
    assert len(sys.meta_path) == before
