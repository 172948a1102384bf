"""Attacks, their decoys and the floors are told apart, and by one module."""

import ast
from pathlib import Path

import pytest

import leakgauge
from leakgauge import catalog
from leakgauge.types import DataSpec, Finding
from leakgauge.verdict.roles import attack_rows, attacks_in, decoys_in, floor_names, floors_in, is_floor
from leakgauge.verdict.summary import summarise

IMAGE = DataSpec("pictures", (1, 8, 8), 10, "image")
SOURCE = Path(leakgauge.__file__).parent


def finding(attack: str, **more) -> Finding:
    return Finding(attack, "none", False, 0, 0, {"ssim": 0.1}, ({"ssim": 0.1},), **more)


TABLE = [
    finding("mean-image"),
    finding("random-guess"),
    finding("dlg"),
    finding("ggl on a decoy", is_decoy=True),
    finding("my own attack"),
]


def test_the_floors_are_those_of_the_catalogue_and_the_least_informed_comes_first():
    assert set(floor_names()) == {name for name, attack in catalog.find("attacks").items() if attack.baseline}
    assert floor_names()[0] == "random-guess"
    assert is_floor("mean-image")
    assert not is_floor("an attack of the user's own")


def test_every_finding_has_one_role():
    parts = [f.attack for f in attacks_in(TABLE)], [f.attack for f in floors_in(TABLE)], sorted(decoys_in(TABLE))
    assert parts == (["dlg", "my own attack"], ["mean-image", "random-guess"], ["ggl on a decoy"])


def test_rows_have_the_role_of_their_findings():
    rows = summarise(TABLE, IMAGE)
    assert [r.attack for r in attack_rows(rows, TABLE)] == ["dlg", "my own attack"]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_nobody_else_asks_the_catalogue_who_is_a_floor(path):
    calls = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
    asked = [n.lineno for n in calls if ast.unparse(n.func) == "catalog.baselines"]
    assert not asked or path.relative_to(SOURCE).as_posix() == "verdict/roles.py", f"lines {asked}"
