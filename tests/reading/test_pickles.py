import collections
import os
import pickle

import pytest

from leakgauge.errors import Unreadable
from leakgauge.reading.pickles import Buildable, unpickle


class Runs:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


class Box(Buildable):
    def __init__(self):
        self.held = None

    def build(self, state):
        self.held = state


class Fills:
    """Pickled as a call without arguments and a second part."""

    def __reduce__(self):
        return collections.OrderedDict, (), {"a": 1}


NAMES = {("collections", "OrderedDict"): Box}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_come_back(protocol):
    value = {"a": [1, 2.5, None, True, (3, "x"), b"y"], "b": {"c": 10**30}}
    names = {("_codecs", "encode"): lambda text, codec: text.encode(codec)}
    assert unpickle(pickle.dumps(value, protocol), names) == value


@pytest.mark.parametrize("function", [os.mkdir, os.system, eval, exec, getattr, __import__, open])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_what_is_not_expected_is_not_run(tmp_path, monkeypatch, function, protocol):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unreadable, match="was not run"):
        unpickle(pickle.dumps(Runs(function, "ran"), protocol), NAMES)
    assert not list(tmp_path.iterdir())


def test_expected_names_stand_for_what_we_say():
    built = unpickle(pickle.dumps(Fills(), 2), NAMES)
    assert isinstance(built, Box)
    assert built.held == {"a": 1}


def test_other_objects_are_not_changed():
    with pytest.raises(Unreadable, match="changes a dict"):
        unpickle(pickle.dumps(Fills(), 2), {("collections", "OrderedDict"): dict})


def test_stored_values_come_from_the_caller():
    stored = b"\x80\x02U\x03keyQ."
    assert unpickle(stored, {}, lambda pid: pid * 2) == b"keykey"
    with pytest.raises(Unreadable, match="outside itself"):
        unpickle(stored, {})


@pytest.mark.parametrize(
    "content", [b"", b"\x80", b".", b"(lp0\n", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x94."]
)
def test_damaged_pickles_are_refused(content):
    with pytest.raises(Unreadable):
        unpickle(content, NAMES)
