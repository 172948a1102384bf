"""Commands are named without being loaded, each says there what it says itself, and old names lead to new ones."""

import ast
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from leakgauge.cli import commands
from leakgauge.cli.commands import KEPT, KEPT_IN_OUT, LAB, OLD, TOP, TREE, Group, every, loaded, meant

SHORT = ["audit", "attack", "list", "report", "inspect", "triage", "property", "train", "data", "bench", "lab"]
COSTS = """
import resource, sys
from leakgauge.cli.main import main
code = main(sys.argv[1:])
heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
sys.exit(code)
"""
KINDS = ("attacks", "defenses", "models", "data", "metrics", "recipes", "threat-models", "aggregators", "encryptions")
LIGHT = ["--help", "--version", "train --help", "lab --help", "data --help", "attack --help"]
LIGHT += ["list", *(f"list {kind}" for kind in KINDS)]
GROUPS = ["train", "data", "lab", "attack"]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


def cpu_seconds(*command: str) -> float:
    """The least of three: other work on the machine only adds to it."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run(*command).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


@pytest.mark.parametrize(
    ("words", "code"), [(words, 0) for words in LIGHT] + [("--no-such", 2), ("no-such", 2), ("", 2), ("lab", 2)]
)
def test_nothing_heavy_is_loaded_where_no_command_runs_and_for_a_list(words, code):
    ended = run("-c", COSTS, *words.split())
    assert ended.returncode == code, ended.stderr


def test_help_and_lists_answer_in_a_fraction_of_the_time_that_torch_takes():
    nothing, torch = cpu_seconds("-c", "pass"), cpu_seconds("-c", "import torch")
    shown, listed = (cpu_seconds("-m", "leakgauge", *words) for words in (["--help"], ["list", "attacks"]))
    assert shown - nothing < 0.5
    assert listed - nothing < 1.5
    assert shown < torch
    assert listed < torch


# --- the tree -------------------------------------------------------------------------------------------------------


def test_the_help_shows_the_short_list_and_nothing_else(leakgauge):
    shown = leakgauge("--help").out
    listed = shown[shown.index("Commands") :]
    assert re.findall(r"^│ ([a-z-]+) ", listed, re.MULTILINE) == SHORT


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_shows_its_commands_and_an_example(leakgauge, group):
    shown = leakgauge(group, "--help").out
    listed = shown[shown.index("Commands") :]
    node = TREE[group]
    assert isinstance(node, Group)
    assert re.findall(r"^│ ([a-z-]+) ", listed, re.MULTILINE) == list(node.members)
    assert "Example: leakgauge " in " ".join(shown.split())


@pytest.mark.parametrize("words", every(), ids=" ".join)
def test_the_list_says_of_a_command_what_the_command_says_of_itself(words):
    said = (loaded(*words).help or "").replace("\n", " ")
    node = meant(words)
    assert node is not None
    about = node.about.replace("\n", " ")
    assert about
    assert re.sub(r"\s+", " ", said).startswith(about)


def test_a_name_that_is_nearly_one_is_told(leakgauge, one_line):
    assert "did you mean 'audit'" in one_line(leakgauge("audt")).lower()
    assert "did you mean 'model'" in one_line(leakgauge("train", "modle")).lower()
    assert "did you mean 'idlg'" in one_line(leakgauge("attack", "idgl")).lower()


@pytest.mark.parametrize(
    ("given", "keeps"),
    [
        ("audit --out a", KEPT),
        ("attack dlg --steps 3", KEPT),
        ("train --rounds 3", KEPT_IN_OUT),
        ("train", KEPT_IN_OUT),
        ("train federation", KEPT_IN_OUT),
        ("train model --data digits", KEPT),
        ("train-model --data digits", KEPT),
        ("lab two-gaussians", ""),
        ("reproduce wei2020cpl", KEPT),
        ("data list", ""),
        ("no-such", None),
    ],
)
def test_a_command_line_is_known_by_what_it_names(given, keeps):
    assert getattr(meant(given.split()), "keeps", None) == keeps


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", OLD)
def test_an_old_name_does_the_same_and_says_the_new_one_in_one_line(old, leakgauge):
    done, new = leakgauge(old, "--help"), leakgauge(*OLD[old].split(), "--help")
    assert (done.code, done.out) == (0, new.out)
    assert done.err.splitlines() == [
        f"leakgauge: '{old}' is an old name and goes with version 0.3: write 'leakgauge {OLD[old]}'"
    ]
    assert new.err == ""


def test_an_old_name_leaves_one_json_document_on_stdout(leakgauge):
    done = leakgauge("reproduce", "wei2020cpl", "--list", "--json")
    assert done.code == 0
    assert done.json["recipe"] == "wei2020cpl"
    assert len(done.err.splitlines()) == 1


def test_every_command_of_version_0_1_is_still_there():
    names = "audit attack list report reproduce inspect triage recorded detection bench property reidentify train "
    names += "train-generator train-model train-locked search-policy two-gaussians read-key read-words data"
    assert [name for name in names.split() if name not in TREE and name not in OLD] == []
    assert [new for new in OLD.values() if tuple(new.split()) not in set(every())] == []


def accuracies(report):
    return [row["accuracy"] for row in report["configurations"]]


def test_bare_train_is_the_federation(leakgauge):
    words = ("--data", "digits", "--model", "mlp:hidden=4", "--partition", "kind=iid,clients=3", "--rounds", "1")
    small = ("--federation", "per_round=2", "--json")
    bare, named = leakgauge("train", *words, *small), leakgauge("train", "federation", *words, *small)
    assert bare.code == named.code == 0
    assert accuracies(bare.json) == accuracies(named.json)


# --- what every command has -----------------------------------------------------------------------------------------

# Draws nothing: it reads or compares. A recipe's seeds are part of it, as its victims are.
WITHOUT_SEED = {("list",), ("report",), ("data", "list"), ("data", "verify"), ("data", "fetch"), ("lab", "reproduce")}
WITHOUT_DEVICE = WITHOUT_SEED - {("lab", "reproduce")}  # computes nothing worth a device
# Writes no file of its own; data sets go to --data-root.
WITHOUT_OUT = {("list",), ("data", "list"), ("data", "verify"), ("data", "fetch"), ("bench",)}
WITHOUT_OUT |= {("lab", "read-key")}


def options_of(words: tuple[str, ...]) -> set[str]:
    return {option for parameter in loaded(*words).params for option in parameter.opts}


@pytest.mark.parametrize("words", every(), ids=" ".join)
def test_every_command_has_the_options_that_all_share(words):
    has = options_of(words)
    assert "--json" in has
    for option, exempt in (("--seed", WITHOUT_SEED), ("--device", WITHOUT_DEVICE), ("--out", WITHOUT_OUT)):
        assert (option in has) == (words not in exempt), option


def examples_of(words: tuple[str, ...]) -> list[str]:
    text = " ".join((loaded(*words).help or "").split())
    return re.findall(r"`(leakgauge [^`]+)`", text[text.find("Example:") :]) if "Example:" in text else []


@pytest.mark.parametrize("words", [*every(), *((group,) for group in GROUPS)], ids=" ".join)
def test_every_command_has_an_example_of_itself_that_can_be_parsed(words):
    examples = examples_of(words)
    assert examples, "its help has no `Example:`"
    assert any(example.startswith(f"leakgauge {' '.join(words)}") for example in examples)
    for example in examples:
        parse(shlex.split(example)[1:])


def parse(arguments: list[str]) -> None:
    """As `main` does it, without running anything; what is wrong raises."""
    command: click.Command = click.Command("leakgauge")
    node = TOP
    while isinstance(node, Group):
        if arguments and arguments[0] in node.members:
            name, *arguments = arguments
        else:
            name = node.usual
        node = node.members[name]
        command = node.load(name)
    command.make_context(command.name, arguments)


def test_no_example_or_message_names_an_old_command():
    old = "|".join(OLD)
    guilty = []
    for path in sorted(Path(commands.__file__).parents[1].rglob("*.py")):
        for text in (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)):
            if isinstance(text, str) and re.search(rf"\bleakgauge (?:{old})\b", text):
                guilty.append(f"{path.name}: {text[:80]!r}")
    assert guilty == []


def test_lab_commands_lie_in_the_folder_of_that_name():
    assert {node.module.partition(".")[0] for node in LAB.commands.values()} == {"lab"}
