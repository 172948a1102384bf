"""Bad input: exit code 2, one line that names what, allowed, got, do; no traceback unless --debug; nothing written."""

from __future__ import annotations

import struct
import sys

import click
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from leakgauge.cli.commands import every, loaded
from leakgauge.types import Client

ATTACK = ("attack", "linear", "--model", "mlp:hidden=4", "--data", "digits", "--trials", "1")
REPLAY = ("attack", "linear", "--model", "mlp:hidden=4", "--data", "digits", "--update")
OWN = """
import click
import numpy as np
from torch import nn

def three(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

def text():
    return "no model"

def broken():
    raise RuntimeError("out of luck")

def negative():
    return np.random.rand(8, 8, 8), np.array([-1, 0, 1, 2] * 2)

def series():
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(40, 3))

def of_series():
    return np.random.rand(4, 2, 12), np.array([0, 1, 2, 0])

def two():
    return (np.random.rand(4, 3), np.random.rand(4, 3)), np.array([0, 1, 2, 0])

def regression():
    return np.random.rand(4, 3), np.random.rand(4)
"""
OWN_ATTACKS = """
from dataclasses import dataclass
from leakgauge.types import Attack

@dataclass(frozen=True)
class NoNeeds(Attack):
    name = "mine"
    summary = "half written"
    paper = "none"

    def solve(self, observation, seeds, progress):
        raise AttributeError("of mine")

@dataclass(frozen=True)
class Fails(NoNeeds):
    needs = frozenset()
"""


def broken_mnist(folder):
    """IDX files whose headers promise more than there is, and labels beyond the ten classes."""
    mnist = folder / "broken" / "mnist"
    mnist.mkdir(parents=True)
    (mnist / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 5, 28, 28) + bytes(3 * 784))
    (mnist / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 5) + bytes(5))
    other = folder / "eleven" / "mnist"
    other.mkdir(parents=True)
    (other / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 5, 28, 28) + bytes(5 * 784))
    (other / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 5) + bytes([0, 1, 2, 3, 11]))


def updates(folder):
    fitting = {
        "fc1.weight": torch.zeros(4, 64),
        "fc1.bias": torch.zeros(4),
        "fc2.weight": torch.zeros(10, 4),
        "fc2.bias": torch.zeros(10),
    }
    nan = fitting | {"fc1.bias": torch.tensor([0, torch.nan, 0, torch.inf])}
    shape = fitting | {"fc1.bias": torch.zeros(5)}
    names = {f"net.{name}": tensor for name, tensor in fitting.items()}
    for name, tensors in {"nan": nan, "shape": shape, "names": names}.items():
        save_file(tensors, folder / f"{name}.safetensors")
    (folder / "truncated.safetensors").write_bytes((folder / "nan.safetensors").read_bytes()[:100])
    torch.save({"fc1.weight": Client()}, folder / "code.pt")


@pytest.fixture
def mess(tmp_path):
    """Everything a user could get wrong, in files."""
    broken_mnist(tmp_path)
    updates(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "attacks.py").write_text(OWN_ATTACKS)
    (tmp_path / "syntax.py").write_text("def net(:\n")
    (tmp_path / "text.txt").write_text("not what you think")
    (tmp_path / "text.npz").write_text("not what you think")
    (tmp_path / "text.safetensors").write_text("not what you think")
    (tmp_path / "file-in-its-place").write_text("")
    images = np.random.default_rng(0).random((8, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "negative.npz", x=images, y=np.array([-1, 0, 1, 2] * 2))
    np.savez(tmp_path / "huge.npz", x=images, y=np.array([0, 10**12] * 4))
    np.savez(tmp_path / "fraction.npz", x=images, y=np.array([0, 0.5] * 4))
    np.savez(tmp_path / "nan.npz", x=images * np.nan, y=np.array([0, 1] * 4))
    for name, text in {
        "unknown": "modle = 'mlp'",
        "malformed": "model = ",
        "nested": "[local]\nepoch = 3",
        "list": "defenses = 5",
        "weights": "data = 'digits'\nweights = 5",
        "trials": "trials = 1.5",
        "local": "local = 3",
        "names": "attacks = [1]",
    }.items():
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "latin.toml").write_bytes(b"model = '\xe9'")
    return tmp_path


BAD = {
    # names
    "unknown attack": (("attack", "idgl"), ["attack must be one of", "'idgl'", "did you mean 'idlg'?"]),
    "unknown attack in a list": (("audit", "--attacks", "linaer"), ["did you mean 'linear'?"]),
    "letters that changed places": (("audit", "--attacks", "dgl"), ["did you mean 'dlg'?"]),
    "commas between attacks": (("audit", "--attacks", "idlg,dlg"), ["put spaces between several: 'idlg dlg'"]),
    "own attack without needs": (("audit", "--attacks", "attacks.py:NoNeeds"), ["one without 'needs'"]),
    "unknown defense": ((*ATTACK, "--defense", "gausian"), ["defense", "did you mean 'gaussian'?"]),
    "unknown model": ((*ATTACK, "--model", "lenet-dgl"), ["model must be one of", "did you mean 'lenet-dlg'?"]),
    "unknown data": ((*ATTACK, "--data", "digit"), ["data set must be one of", "did you mean 'digits'?"]),
    "unknown field": ((*ATTACK, "--defense", "gaussian:sdt=1"), ["field of gaussian", "did you mean 'std'?"]),
    "unknown threat model": ((*ATTACK, "--threat-model", "curious"), ["threat model", "honest-but-curious"]),
    "unknown oracle": ((*ATTACK, "--threat-model", "eavesdropper+label"), ["did you mean 'labels'?"]),
    "unknown device": ((*ATTACK, "--device", "tpu"), ["device must be", "'tpu'"]),
    "device that is not there": ((*ATTACK, "--device", "cuda:77"), ["device must be", "'cuda:77'"]),
    "unknown flag": ((*ATTACK, "--stepz", "3"), ["--stepz"]),
    "unknown command": (("atack",), ["atack"]),
    "unknown kind of list": (("list", "attack"), ["did you mean 'attacks'?"]),
    # numbers
    "negative noise": ((*ATTACK, "--defense", "gaussian:std=-1"), ["gaussian: std must be at least 0, got -1"]),
    "noise that is no number": ((*ATTACK, "--defense", "gaussian:std=much"), ["std must be a number, got 'much'"]),
    "infinite noise": ((*ATTACK, "--defense", "gaussian:std=inf"), ["finite"]),
    "share above one": ((*ATTACK, "--defense", "prune:share=1.5"), ["at most 1"]),
    "no trials": ((*ATTACK, "--trials", "0"), ["trials must be a whole number from 1 to 2147483647, got 0"]),
    "negative seed": ((*ATTACK, "--seed", "-1"), ["seed must be"]),
    "endless seed": ((*ATTACK, "--seed", "9" * 30), ["seed"]),
    "no steps": (("attack", "dlg", "--steps", "0"), ["dlg: steps must be at least 1, got 0"]),
    "word for a number": (("attack", "dlg", "--steps", "many"), ["steps must be a whole number, got 'many'"]),
    "batch larger than the data": ((*ATTACK, "--batch-size", "451"), ["batch_size", "at most 450", "451"]),
    "more trials than data": ((*ATTACK, "--trials", "451"), ["at most 450", "451"]),
    "impossible labels": ((*ATTACK, "--batch-size", "11", "--batch-labels", "distinct"), ["at most 10", "11"]),
    "local rate of zero": ((*ATTACK, "--local", "lr=0"), ["local: lr must be above 0"]),
    "local without a value": ((*ATTACK, "--local", "fedavg"), ["field=value"]),
    "unknown metric": ((*ATTACK, "--metrics", "sim"), ["metric", "did you mean 'ssim'?"]),
    "metric without its weights": ((*ATTACK, "--metrics", "lpips"), ["leakgauge data fetch lpips"]),
    "unknown partition": ((*ATTACK, "--partition", "kind=skewed"), ["partition: kind must be one of"]),
    "more clients than samples": ((*ATTACK, "--partition", "kind=iid,clients=451"), ["1 to 450", "451"]),
    "gate on no metric": (("audit", "--gate", "sim=1"), ["did you mean 'ssim'?"]),
    "gate without a number": (("audit", "--gate", "ssim=high"), ["ssim=NUMBER"]),
    "gate at nan": (("audit", "--gate", "ssim=nan"), ["ssim=NUMBER"]),
    "gate that nothing reaches": (("audit", "--gate", "ssim=2"), ["from -1 to 1"]),
    "a defense that does not fit the data": (
        ("audit", "--model", "mlp", "--data", "breast-cancer", "--defenses", "ats:policy=3-1-7"),
        ["defenses must be", "transforms pictures"],
    ),
    # scenario files
    "an attack for a scenario": (("audit", "dlg"), ["'dlg'", "--attacks dlg"]),
    "no scenario": (("audit", "nothing.toml"), ["nothing.toml", "No such file"]),
    "folder for a scenario": (("audit", "broken"), ["broken"]),
    "unknown TOML key": (("audit", "unknown.toml"), ["scenario key", "'modle'", "did you mean 'model'?"]),
    "unknown TOML key in a section": (("audit", "nested.toml"), ["field of local", "did you mean 'epochs'?"]),
    "malformed TOML": (("audit", "malformed.toml"), ["valid TOML"]),
    "TOML in another encoding": (("audit", "latin.toml"), ["valid TOML"]),
    "number for a list in TOML": (("audit", "list.toml"), ["defenses must be a list of names, got 5"]),
    "number for a name in TOML": (("audit", "names.toml"), ["attacks must be a list of names"]),
    "number for a path in TOML": (("audit", "weights.toml"), ["weights"]),
    "fraction for a count in TOML": (("audit", "trials.toml"), ["trials must be a whole number", "1.5"]),
    "number for a section in TOML": (("audit", "local.toml"), ["local must be a table, got 3"]),
    # data
    "truncated IDX": ((*ATTACK, "--data", "mnist", "--data-root", "broken"), ["t10k-images", "3920", "far fewer"]),
    "IDX labels out of range": ((*ATTACK, "--data", "mnist", "--data-root", "eleven"), ["between 0 and 9", "larger"]),
    "data that is not here": ((*ATTACK, "--data", "cifar10"), ["leakgauge data fetch cifar10"]),
    "negative labels": ((*ATTACK, "--data", "negative.npz"), ["labels of 'negative' must be 0 to"]),
    "labels beyond reason": ((*ATTACK, "--data", "huge.npz"), ["label"]),
    "labels that are fractions": ((*ATTACK, "--data", "fraction.npz"), ["loss", "numbers", "--local loss=mse"]),
    "pixels that are nan": ((*ATTACK, "--data", "nan.npz"), ["finite"]),
    "labels out of range from own code": ((*ATTACK, "--data", "own.py:negative"), ["must be 0 to"]),
    "two inputs": ((*ATTACK, "--data", "own.py:two"), ["one array of numbers, got tuple of 2", "takes apart"]),
    "regression": ((*ATTACK, "--data", "own.py:regression"), ["loss must be one for numbers", "--local loss=mse"]),
    "text for an archive": ((*ATTACK, "--data", "text.npz"), ["text.npz", "readable .npz"]),
    "text for data": ((*ATTACK, "--data", "./text.txt"), ["text.txt"]),
    "folder without images": ((*ATTACK, "--data", "./broken"), ["broken"]),
    # models and weights
    "own model of the wrong shape": ((*ATTACK, "--model", "own.py:three"), ["of shape (1, 10), got (1, 3)"]),
    "own model of series": (
        (*ATTACK, "--model", "own.py:series", "--data", "own.py:of_series"),
        ["own.py:series", "Expected 2D (unbatched) or 3D (batched) input", "a model of series drops that axis"],
    ),
    "own model that is none": ((*ATTACK, "--model", "own.py:text"), ["torch.nn.Module", "str"]),
    "own model that fails": ((*ATTACK, "--model", "own.py:broken"), ["RuntimeError: out of luck"]),
    "own model that is not in the file": ((*ATTACK, "--model", "own.py:tree"), ["did you mean 'three'?"]),
    "own file with a mistake": ((*ATTACK, "--model", "syntax.py:net"), ["SyntaxError"]),
    "own file that is not there": ((*ATTACK, "--model", "no.py:net"), ["no such file"]),
    "model that does not fit the data": ((*ATTACK, "--model", "vgg16-mkor"), ["32x32", "8x8"]),
    "text for weights": ((*ATTACK, "--weights", "text.safetensors"), ["text.safetensors", "checkpoint"]),
    "weights of another model": ((*ATTACK, "--weights", "names.safetensors"), ["4 missing, 4 unknown"]),
    "weights that are not there": ((*ATTACK, "--weights", "no.safetensors"), ["no such file"]),
    # saved updates
    "NaN in an update": ((*REPLAY, "nan.safetensors"), ["'fc1.bias'", "finite", "2 NaN or infinite"]),
    "update of another shape": ((*REPLAY, "shape.safetensors"), ["'fc1.bias'", "(1, 4)", "(1, 5)"]),
    "update of another model": ((*REPLAY, "names.safetensors"), ["missing 'fc1.bias'", "unknown 'net.fc1.bias'"]),
    "truncated update": ((*REPLAY, "truncated.safetensors"), ["truncated.safetensors", "tensors and nothing else"]),
    "text for an update": ((*REPLAY, "text.txt"), ["text.txt"]),
    "update with code in it": ((*REPLAY, "code.pt"), ["tensors and nothing else"]),
    "update that is not there": ((*REPLAY, "no.safetensors"), ["no such file"]),
    "update and a defense": ((*REPLAY, "nan.safetensors", "--defense", "gaussian"), ["--update"]),
    # other commands
    "no run to report": (("report", "broken"), ["broken", "report.json"]),
    "unknown data set to fetch": (("data", "fetch", "minst"), ["did you mean 'mnist'?"]),
    "unknown data set to verify": (("data", "verify", "minst"), ["did you mean 'mnist'?"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_nothing_is_written(case, leakgauge, mess, one_line, files_in):
    arguments, words = BAD[case]
    out = () if arguments[0] in ("list", "data", "report", "atack") else ("--out", "out")
    before = files_in(mess)
    line = one_line(leakgauge(*arguments, *out))
    for word in words:
        assert word in line, line
    assert [name for name in files_in(mess) if name not in before and "__pycache__" not in name] == []


def test_an_own_attack_that_fails_is_bad_input_and_says_how(leakgauge, mess, small):
    done = leakgauge("audit", *small, "--attacks", "attacks.py:Fails", "--defenses", "none", "--out", "out")
    assert done.code == 2
    last = done.err.strip().splitlines()[-1]
    assert "attack 'mine' must be one that runs, got AttributeError: of mine; correct it; --debug shows where" in last
    assert "Traceback" not in done.err


def test_output_folder_that_is_a_file_is_refused_before_anything_runs(leakgauge, mess, one_line):
    line = one_line(leakgauge(*ATTACK, "--out", "file-in-its-place"))
    assert "file-in-its-place" in line
    assert "--out must be a folder" in line


def test_debug_shows_the_traceback(leakgauge):
    for words in (("--debug", *ATTACK, "--defense", "gausian"), (*ATTACK, "--defense", "gausian", "--debug")):
        done = leakgauge(*words)
        assert done.code == 2
        assert done.err.startswith("Traceback")
        assert "did you mean 'gaussian'" in done.err.strip().splitlines()[-1]


@pytest.mark.parametrize("arguments", [(), ("attack",), ("data",), ("lab",)], ids=" ".join)
def test_no_command_shows_the_help(leakgauge, arguments):
    outcome = leakgauge(*arguments)
    assert outcome.code == 2
    assert "Usage" in outcome.err + outcome.out
    assert "Traceback" not in outcome.err


def test_help_and_version(leakgauge):
    helped = leakgauge("--help")
    assert helped.code == 0
    for command in ("audit", "attack", "list", "report", "data"):
        assert command in helped.out
    version = leakgauge("--version")
    assert version.code == 0
    assert version.out.startswith("leakgauge ")


def test_reader_that_went_away_is_no_error(leakgauge, monkeypatch):
    def gone(text):
        raise BrokenPipeError

    monkeypatch.setattr("leakgauge.cli.listing.show_json", gone)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # main replaces it, so that Python's own flush finds no pipe
    assert leakgauge("list", "attacks", "--json").code == 0
    sys.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lab", "two-gaussians"), "nothing was kept"),
        (("train",), "with --out it would be"),
        (("train", "--out", "here"), "give the same command again to resume"),
    ],
)
def test_an_interrupt_is_said_with_what_is_kept(leakgauge, monkeypatch, arguments, said):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("leakgauge.cli.lab.two_gaussians.compare", stop)
    monkeypatch.setattr("leakgauge.cli.train.federation.train_federation", stop)
    outcome = leakgauge(*arguments)
    assert outcome.code == 130
    assert "interrupted; " in outcome.err
    assert said in outcome.err


# --- every command ----------------------------------------------------------------------------------


def option_of(words: tuple[str, ...], kinds: tuple[type, ...]) -> str | None:
    """The first option of a command that takes such a value."""
    parameters = loaded(*words).params
    return next((p.opts[0] for p in parameters if isinstance(p.type, kinds) and p.opts[0].startswith("--")), None)


@pytest.mark.parametrize("words", every(), ids=" ".join)
class TestEveryCommand:
    def test_an_unknown_flag_is_one_line_and_bad_input(self, words, leakgauge, one_line):
        assert "--no-such-flag" in one_line(leakgauge(*words, "--no-such-flag"))

    def test_a_word_for_a_number_is_one_line_and_bad_input(self, words, leakgauge, one_line):
        option = option_of(words, (click.types.IntParamType, click.types.FloatParamType))
        if option is None:
            pytest.skip("takes no number")
        assert option in one_line(leakgauge(*words, option, "many"))

    def test_a_defect_of_ours_never_ends_with_the_exit_code_of_a_gate(self, words, leakgauge, monkeypatch):
        def defect(*_, **__):
            raise AssertionError("nobody foresaw\nthis")

        monkeypatch.setattr(click.Command, "invoke", defect)
        done = leakgauge(*words)
        assert done.code in (2, 70)  # 2 where an argument is missing, which comes first
        assert len(done.err.strip().splitlines()) == 1
        if done.code == 70:
            assert "unforeseen AssertionError: nobody foresaw this; please report it" in done.err
