"""Settings are fields: one definition, checked in one place, with messages one can act on."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest

from leakgauge.errors import BadInput
from leakgauge.settings import Settings, plain_type, setting, unknown_name


@dataclass(frozen=True)
class Example(Settings):
    name: ClassVar[str] = "example"
    summary: ClassVar[str] = "for tests"

    rate: float = setting(0.5, "a positive number", above=0, high=10)
    count: int = setting(3, "a small count", low=1, high=5)
    mode: str = setting("fast", "how", choices=("fast", "slow"))
    quiet: bool = setting(False, "say nothing")
    limit: float | None = setting(None, "perhaps a limit", low=0)


@dataclass(frozen=True)
class Bare(Settings):
    name: ClassVar[str] = "bare"
    summary: ClassVar[str] = "no fields"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Example()),
        ("rate=2", Example(rate=2.0)),
        ("count=4,mode=slow", Example(count=4, mode="slow")),
        (" rate = 1e-3 , quiet = yes ", Example(rate=1e-3, quiet=True)),
        ("count=1e0", Example(count=1)),
        ("limit=0", Example(limit=0.0)),
        ("quiet=false", Example(quiet=False)),
    ],
)
def test_text_becomes_typed_fields(text, expected):
    made = Example.from_text(text)
    assert made == expected
    assert [type(v) for v in dataclasses.astuple(made)] == [type(v) for v in dataclasses.astuple(expected)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 0}, "example: rate must be above 0 and at most 10, got 0.0"),
        ({"rate": 11}, "above 0 and at most 10"),
        ({"rate": "fast"}, "rate must be a number, got 'fast'"),
        ({"rate": float("nan")}, "a finite number"),
        ({"rate": "inf"}, "a finite number"),
        ({"rate": True}, "a number, got True"),
        ({"rate": None}, "rate must be given"),
        ({"rate": [1]}, r"a number, got \[1\]"),
        ({"count": 0}, "at least 1 and at most 5, got 0"),
        ({"count": 6}, "at least 1 and at most 5, got 6"),
        ({"count": 2.5}, "a whole number, got 2.5"),
        ({"count": "many"}, "a whole number, got 'many'"),
        ({"count": False}, "a whole number, got False"),
        ({"mode": "fst"}, "one of fast, slow, got 'fst'; did you mean 'fast'"),
        ({"mode": "xyz"}, "choose one of these"),
        ({"mode": 3}, "mode must be text, got 3"),
        ({"quiet": "maybe"}, "true or false, got 'maybe'"),
        ({"quiet": 1}, "true or false"),
        ({"limit": -1}, "at least 0"),
    ],
)
def test_a_wrong_value_is_refused_and_the_message_says_which_what_and_why(values, message):
    with pytest.raises(BadInput, match=message) as caught:
        Example.from_mapping(values)
    assert str(caught.value).startswith("example: ")
    assert "\n" not in str(caught.value)


def test_the_constructor_checks_too():
    with pytest.raises(BadInput, match="example: count"):
        Example(count=9)


def test_whole_floats_become_ints_and_ints_become_floats():
    assert type(Example(count=2.0).count) is int
    assert type(Example(rate=2).rate) is float


def test_an_unknown_field_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match=r"field of example .*got 'rat'; did you mean 'rate'"):
        Example.from_text("rat=3")


def test_text_without_an_equals_sign_is_refused_with_an_example():
    with pytest.raises(BadInput, match=r"written field=value.*for example example:rate=0.5"):
        Example.from_text("fast")


def test_dashes_in_field_names_are_underscores():
    @dataclass(frozen=True)
    class Two(Settings):
        name: ClassVar[str] = "two"
        summary: ClassVar[str] = ""
        two_words: int = setting(1, "")

    assert Two.from_text("two-words=4").two_words == 4


@pytest.mark.parametrize("made", [Example(), Example(rate=1e-7), Example(count=2, quiet=True, limit=3.0)])
def test_spec_and_dict_give_back_an_equal_object(made):
    assert Example.from_text(made.spec.partition(":")[2]) == made
    assert Example.from_mapping(made.as_dict()) == made


def test_spec_names_only_what_differs():
    assert Example().spec == "example"
    assert Example(count=2, mode="slow").spec == "example:count=2,mode=slow"


def test_example_is_the_first_field_or_the_bare_name():
    assert Example.example() == "example:rate=0.5"
    assert Bare.example() == "bare"


def test_with_fields_copies_or_says_it_has_them_not():
    made = Example()
    assert made.with_fields(count=5) == Example(count=5)
    assert made.count == 3
    assert made.with_fields(count=5, weight=1) is None
    with pytest.raises(BadInput):
        made.with_fields(count=50)


def test_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Example().count = 4


def test_plain_type_drops_none():
    assert plain_type(Example, "limit") is float
    assert plain_type(Example, "mode") is str


def test_unknown_name_lists_what_there_is():
    assert "one of a, b, got 'zzz'; choose one of these" in str(unknown_name("thing", "zzz", ["b", "a"]))
    assert "(none)" in str(unknown_name("thing", "zzz", []))
