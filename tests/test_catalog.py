"""Folders are walked, unknown names are refused with the nearest, and the user's own files are welcome."""

import textwrap

import pytest

from leakgauge import catalog
from leakgauge.attacks.dlg import DLG
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import BadInput
from leakgauge.types import Attack, Defense

OWN = """
    from __future__ import annotations
    from dataclasses import dataclass
    from typing import ClassVar
    from leakgauge.settings import setting
    from leakgauge.types import Attack, Fact

    @dataclass(frozen=True)
    class Mine(Attack):
        name: ClassVar[str] = "mine"
        summary: ClassVar[str] = "mine"
        paper: ClassVar[str] = "none"
        needs: ClassVar[frozenset[Fact]] = frozenset()
        strength: float = setting(1.0, "how hard", low=0)

    def factory():
        return 1
"""


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(textwrap.dedent(OWN))
    return path


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        ("attacks", {"dlg", "idlg", "linear", "random-guess", "mean-image"}),
        ("defenses", {"gaussian", "laplace", "prune"}),
        ("models", {"lenet-dlg", "lenet-cpl", "convnet", "mlp", "resnet20", "vgg16-mkor"}),
        ("data", {"digits", "photos32", "photos64", "breast-cancer", "mnist", "cifar10"}),
        ("metrics", {"mse", "psnr", "ssim", "lpips"}),
    ],
)
def test_what_is_in_the_folders_is_found_sorted_and_under_its_own_name(kind, some):
    found = catalog.find(kind)
    assert some <= set(found)
    assert list(found) == sorted(found)
    assert all(thing.name == name for name, thing in found.items())


def test_base_classes_and_borrowed_classes_are_not_listed():
    attacks = catalog.find("attacks").values()
    assert all(issubclass(a, Attack) and a is not Attack for a in attacks)
    assert all(issubclass(d, Defense) and d is not Defense for d in catalog.find("defenses").values())
    assert not any(a.__name__.startswith("_") or a.__name__ == "GradientMatching" for a in attacks)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("attacks", "idgl", "attack must be one of .*got 'idgl'; did you mean 'idlg'"),
        ("defenses", "gausian", "defense must be .*did you mean 'gaussian'"),
        ("models", "lenetdlg", "model must be .*did you mean 'lenet-dlg'"),
        ("data", "cifar", "data set must be .*did you mean 'cifar10"),
        ("metrics", "sim", "metric must be .*did you mean 'ssim'"),
        ("attacks", "zzzzzz", "choose one of these"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(kind, name, message):
    with pytest.raises(BadInput, match=message):
        catalog.get(kind, name)


def test_build_reads_name_and_fields():
    assert catalog.build("attacks", "dlg:steps=5,restarts=2") == DLG(steps=5, restarts=2)
    assert catalog.build("defenses", "gaussian") == Gaussian()


def test_build_refuses_an_unknown_field():
    with pytest.raises(BadInput, match=r"field of dlg .*did you mean 'steps'"):
        catalog.build("attacks", "dlg:step=5")


def test_an_attack_from_the_users_own_file(own_file):
    made = catalog.build("attacks", f"{own_file}:Mine:strength=2.5")
    assert isinstance(made, Attack)
    assert made.spec == "mine:strength=2.5"
    assert catalog.build("attacks", f"{own_file}:Mine").strength == 1.0


def test_a_class_from_a_module_by_its_dotted_name():
    assert catalog.build("attacks", "leakgauge.attacks.dlg:DLG:steps=4") == DLG(steps=4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{file}:Mime", "did you mean 'Mine'"),
        ("{file}:factory", "a class of leakgauge attacks"),
        ("{file}", "a file or module and a name in it"),
        ("{folder}/none.py:Mine", "an existing Python file, got no such file"),
        ("no.such.module:Mine", "importable, got ModuleNotFoundError"),
    ],
)
def test_a_mistake_in_own_code_is_refused_in_one_line(own_file, spec, message):
    with pytest.raises(BadInput, match=message) as caught:
        catalog.build("attacks", spec.format(file=own_file, folder=own_file.parent))
    assert "\n" not in str(caught.value)


def test_a_file_that_breaks_on_import_says_how(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("raise RuntimeError('two\\nlines')")
    with pytest.raises(BadInput, match="importable, got RuntimeError: two lines"):
        catalog.own(f"{path}:thing")


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        ("a.py:X", True),
        ("dir/a.py:X", True),
        ("pkg.mod:X", True),
        ("dlg:lr=0.5", False),
        ("dlg", False),
        ("./d", False),
    ],
)
def test_own_code_is_told_from_names(spec, own):
    assert catalog.is_own(spec) is own


def test_arguments_behind_an_own_factory_are_read_as_numbers_truth_or_text():
    found = catalog.arguments("data", "clients=3, rate=0.5,shuffle=true,name=a")
    assert found == {"clients": 3, "rate": 0.5, "shuffle": True, "name": "a"}
    with pytest.raises(BadInput, match="key=value"):
        catalog.arguments("data", "3")
