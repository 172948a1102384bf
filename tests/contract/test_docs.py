"""The documentation keeps its word: commands of the task pages run, links lead somewhere, each attack has its page."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from leakgauge import catalog
from leakgauge.cli import main
from leakgauge.cli.commands import every
from leakgauge.setup.plan import informed_by
from leakgauge.testing import check_attack
from leakgauge.types import Attack, Known

ROOT = Path(__file__).parents[2]
DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "leakgauge"
KINDS = ("tutorial", "how-to", "reference", "explanation")
FOLDERS = (*KINDS, "results", "papers")
PAGES = {p.relative_to(DOCS).with_suffix("").as_posix(): p for folder in FOLDERS for p in (DOCS / folder).glob("*.md")}
RUN = (  # they need no data set but embedded ones
    "tutorial/ten-minutes",
    "tutorial/one-command-at-a-time",
    "how-to/compare-two-audits",
    "how-to/gate-a-build",
    "how-to/look-before-you-attack",
    "how-to/measure-the-cost-of-a-defense",
    "how-to/reproduce-a-paper",
    "how-to/train-a-generator",
    "how-to/weigh-assumptions",
    "explanation/threat-models",
)
DIARY = re.compile(r"seed 0\b|\b[A-Z0-9]\w* victims of\b|H200|on a CPU|dB \[")  # what a measurement is told with
CODES = {"exits with 1": 1, "exits with 2": 2}  # said in a comment behind the command


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    """Command lines in the order shown; a backslash at a line's end continues it."""
    lines = "\n".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").strip() for line in lines if line.startswith("$ ")]


@pytest.mark.parametrize("page", RUN)
def test_commands_and_python_of_a_page_run_in_their_order(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert commands(page)
    for command in commands(page):
        program, *arguments = shlex.split(command, comments=True)
        assert program == "leakgauge"
        expected = next((code for said, code in CODES.items() if said in command), 0)
        code = main(arguments)
        assert code == expected, f"{command}\n{capsys.readouterr().err}"
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), {"__name__": page})


@pytest.mark.parametrize("page", ["index", *PAGES])
def test_links_to_other_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", text_of(page)):
        assert ((DOCS / page).parent / target).is_file(), target


def test_the_model_and_data_that_are_shown_can_be_audited(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "how-to/audit-your-model"
    for block in blocks(page, "python"):
        Path(block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    (scenario,) = blocks(page, "toml")
    Path("scenario.toml").write_text(scenario, encoding="utf-8")
    assert main(["audit", "scenario.toml", "--out", "run"]) == 0
    assert Path("run/report.html").is_file()


EXAMPLES = ("nearest", "rotation", "NAME", "VERSION")  # what the how-tos let a reader write, and placeholders


@pytest.mark.parametrize("page", ["index", *PAGES])
def test_modules_and_files_that_a_page_names_are_there(page):
    paths = set(re.findall(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|md|json|txt|sh))`", text_of(page)))
    names = set(re.findall(r"\bleakgauge(?:\.[a-z_]\w*)+(?:\.[A-Z]\w*)?", text_of(page)))
    for module, imported in re.findall(r"^from (leakgauge[\w.]*) import ([\w, ]+)$", text_of(page), re.MULTILINE):
        names |= {f"{module}.{name.strip()}" for name in imported.split(",")}
    missing = [p for p in paths if not any((root / p).exists() for root in (ROOT, SOURCE, SOURCE.parent))]
    missing += [name for name in names if not is_there(name)]
    assert [what for what in missing if not any(word in what for word in EXAMPLES)] == []


def is_there(name: str) -> bool:
    """`leakgauge.report.from_json`: a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        with suppress(ModuleNotFoundError):
            thing = import_module(".".join(parts[:end]))
            return functools.reduce(lambda found, part: getattr(found, part, None), parts[end:], thing) is not None
    return False


def contents(page: str) -> set[str]:
    """The pages that its tables of contents name."""
    names = re.findall(r"^([\w/-]+)$", "\n".join(re.findall(r"```{toctree}(.*?)```", text_of(page), re.DOTALL)), re.M)
    return {(Path(page).parent / name).as_posix() for name in names}


def test_every_page_has_its_place_in_the_contents():
    listed = contents("index").union(*(contents(page) for page in PAGES if page.endswith("/index")))
    assert set(PAGES) == listed


def test_the_four_kinds_stand_apart_on_the_first_page():
    for kind in KINDS:
        assert re.search(rf"^\*\*\[.*\]\({kind}/[\w-]+\.md\)\*\*: \*I want to .*\*", text_of("index"), re.M), kind


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("how-to/", "reference/"))])
def test_a_page_that_is_looked_up_tells_no_measurement(page):
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.DOTALL)
    assert not DIARY.search(prose), f"what was measured belongs to docs/results: {DIARY.search(prose)}"


def test_every_command_has_its_section_in_the_reference():
    sections = re.findall(r"^##+ leakgauge (.+)$", text_of("reference/cli"), re.MULTILINE)
    wanted = {" ".join(words[:1] if words[0] in ("attack", "data") else words) for words in every()}
    assert wanted - set(sections) == set()


def test_words_of_the_glossary_are_in_order_and_explained_once():
    words = re.findall(r"^([a-z ]+)\n: ", text_of("reference/glossary"), re.MULTILINE)
    assert len(words) > 20
    assert words == sorted(set(words))


@pytest.fixture(scope="module")
def settings() -> ModuleType:
    pytest.importorskip("click")
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)  # writes the generated pages
    sys.path[:] = path
    return module


@pytest.mark.parametrize("kind", ["attacks", "defenses"])
def test_each_has_a_generated_page_and_no_page_is_left_over(settings, kind):
    pages = {p.stem: p.read_text(encoding="utf-8") for p in (settings.GENERATED / kind).glob("*.md")}
    assert set(pages) == set(catalog.find(kind))
    for name, thing in catalog.find(kind).items():
        assert pages[name].startswith(f"# {name}\n")
        assert "Example:" in pages[name]
        assert settings._plain(thing.paper) in pages[name]


def test_a_generated_page_names_the_ways_to_use_that_one_knows_the_defense(settings):
    for defense, ways in (
        ("prune", "one way"),
        ("key-lock", "`joint`; `behind the lock`; `joint, not stretched` (weaker"),
    ):
        of_attack = settings._page("attacks", "dlg", catalog.get("attacks", "dlg"))
        of_defense = settings._page("defenses", defense, catalog.get("defenses", defense))
        assert f"[{defense}](../defenses/{defense}.md) | {ways}" in of_attack
        assert f"[dlg](../attacks/dlg.md) | {ways}" in of_defense


def test_the_table_of_who_knows_what_has_every_attack_and_every_defense(settings):
    head, _, *rows = (settings.GENERATED / "capabilities.md").read_text(encoding="utf-8").splitlines()
    cells = {
        line.split(" | ")[0].removeprefix("| "): line.removesuffix(" |").split(" | ")[1:] for line in (head, *rows)
    }
    assert cells.pop("attack") == [f"`{name}`" for name in catalog.find("defenses")]
    assert list(cells) == [f"`{name}`" for name in catalog.find("attacks")]
    defenses = list(catalog.find("defenses"))
    assert cells["`dlg`"][defenses.index("key-lock")] == "2"
    assert cells["`mean-image`"] == ["–"] * len(defenses)
    assert cells["`labels`"][defenses.index("prune")] == "?"


def test_the_picture_of_packages_has_each_package_once_and_each_import_that_does_not_follow(settings):
    import layers  # the settings put tools/ on the path

    picture = ElementTree.parse(settings.GENERATED / "packages.svg")
    names = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    imports = layers.without_implied(layers.package_graph())
    assert sorted(names) == sorted(imports.keys() - {"entry", "__main__"})
    dots = list(picture.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(dots) == sum(len(imports[name]) for name in names)


def test_the_architecture_page_lists_the_way_from_the_command_to_the_attack(settings):
    listed = re.findall(r"^1. `(leakgauge[\w.]+)`: .+[.]$", (settings.GENERATED / "way.md").read_text(), re.MULTILINE)
    assert 1 < len(listed) <= 8
    assert listed[-1] == "leakgauge.types.attack"


@pytest.fixture
def shown(tmp_path: Path) -> Callable[[str, str], type]:
    """shown(page, "Class"): the class out of the page's own block, saved as a user would save it."""

    def saved(page: str, name: str) -> type:
        (text,) = [block for block in blocks(page, "python") if f"\nclass {name}(" in block]
        (tmp_path / f"{name.lower()}.py").write_text(text, encoding="utf-8")
        return catalog.own(f"{tmp_path / name.lower()}.py:{name}")

    return saved


def test_the_attacks_that_are_shown_hold_to_the_contract(shown):
    check_attack(shown("how-to/add-an-attack", "Nearest"))
    check_attack(shown("how-to/add-an-attack", "Descent")(steps=2))


def test_the_test_that_is_shown_passes(shown, monkeypatch):
    nearest = shown("how-to/add-an-attack", "Nearest")
    (block,) = [block for block in blocks("how-to/add-an-attack", "python") if "def test_" in block]
    home = ModuleType("leakgauge.attacks.nearest")
    home.Nearest = nearest
    monkeypatch.setitem(sys.modules, home.__name__, home)
    names = {"__name__": "shown"}
    exec(compile(block, "shown", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


def test_the_defense_that_is_shown_is_the_one_that_is_tested():
    (block,) = [block for block in blocks("how-to/add-a-defense", "python") if "class Rotation" in block]
    assert block == Path(__file__).with_name("rotation_defense.py").read_text(encoding="utf-8")


def test_the_attack_that_is_shown_is_informed_of_the_defense_that_is_shown(shown):
    attack, defense = shown("how-to/add-an-attack", "Descent")(), shown("how-to/add-a-defense", "Rotation")()
    assert informed_by(attack, (defense,)) == ((Known(defense),),)


@pytest.mark.parametrize(
    ("page", "row"), [("how-to/add-an-attack", "`matching"), ("how-to/add-a-defense", "`informs_")]
)
def test_the_attacks_of_each_kind_of_problem_are_listed(page, row):
    listed = re.findall(rf"^\| {row}.*\| (`[^|]*`) \|$", text_of(page), re.MULTILINE)
    named = [name for names in listed for name in re.findall(r"`([a-z-]+)`", names)]
    posing = [name for name, attack in catalog.find("attacks").items() if attack.kind is not Attack.kind]
    assert sorted(named) == sorted(posing)
