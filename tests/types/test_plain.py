"""Plain values become dataclasses by the types of the fields; what does not fit is named with its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from leakgauge.types import Finding, Rate
from leakgauge.types.plain import fields_of, read


@dataclass(frozen=True)
class Leaf:
    name: str
    size: int = 0


@dataclass(frozen=True)
class Tree:
    leaves: tuple[Leaf, ...]
    by_name: Mapping[str, Leaf | None] = dataclasses.field(default_factory=dict)
    rows: tuple[tuple[float | None, ...], ...] = ()
    ripe: bool | None = None
    best: Leaf | None = None


def test_nested_values_become_nested_dataclasses():
    plain = {
        "leaves": [{"name": "a"}, {"name": "b", "size": 2}],
        "by_name": {"a": {"name": "a"}, "b": None},
        "rows": [[1, None], []],
        "ripe": False,
        "best": {"name": "b", "size": 2},
    }
    a, b = Leaf("a"), Leaf("b", 2)
    assert read(Tree, plain, "tree") == Tree((a, b), {"a": a, "b": None}, ((1, None), ()), False, b)


def test_what_is_left_out_takes_its_default():
    assert read(Tree, {"leaves": []}, "tree") == Tree(())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"leaves": None}, "tree.leaves is None, not a list"),
        ({"leaves": "ab"}, "tree.leaves is 'ab', not a list"),
        ({"leaves": [{"name": "a"}, {}]}, "tree.leaves[1] has no key 'name'"),
        ({"leaves": [{"name": "a", "size": 1.5}]}, "tree.leaves[0].size is 1.5, not a whole number"),
        ({"leaves": [{"name": "a", "size": True}]}, "tree.leaves[0].size is True, not a whole number"),
        ({"leaves": [{"name": 3}]}, "tree.leaves[0].name is 3, not text"),
        ({"by_name": []}, "tree.by_name is [], not an object"),
        ({"rows": [["x"]]}, "tree.rows[0][0] is 'x', not a number"),
        ({"ripe": 1}, "tree.ripe is 1, not true or false"),
        ({"colour": "red"}, "tree has the unknown key 'colour'"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(changes, said):
    with pytest.raises(ValueError) as caught:
        read(Tree, {"leaves": []} | changes, "tree")
    assert str(caught.value) == said


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(ValueError, match=r"tree is '[x]+\.\.\., not an object"):
        read(Tree, "x" * 1000, "tree")


def test_a_finding_comes_back_from_its_plain_values():
    finding = Finding("dlg", "none", False, 0, 0, {"ssim": 0.5}, ({"ssim": None},), ranks=(1.0,), credible=(None,))
    assert Finding.from_dict(dataclasses.asdict(finding)) == finding


def test_fields_are_listed_in_their_order():
    assert list(fields_of(Rate)) == ["value", "low", "high", "recovered", "records", "criterion"]
