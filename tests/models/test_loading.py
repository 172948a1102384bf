"""Models by name and of the user's own, and checkpoints that fit, that do not fit, and that would run code."""

import os
import pickle
import sys
import textwrap
from collections import OrderedDict
from pathlib import Path

import pytest
import safetensors.torch
import torch

from leakgauge.errors import BadInput
from leakgauge.models import load_model, load_tensors, parameter_count
from leakgauge.models.loading import logits_of
from leakgauge.types import DataSpec

OWN = textwrap.dedent("""
    import torch
    from torch import nn
    from leakgauge.models._base import ModelSpec
    from leakgauge.models.mlp import MLP

    seen = {}

    def full(input_shape, num_classes, seed, hidden=4, scale=1.0, deep=False, note=""):
        seen.update(locals())
        size = torch.Size(input_shape).numel()
        return nn.Sequential(nn.Flatten(), nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

    def bare():
        return nn.Sequential(nn.Flatten(), nn.Linear(30, 2))

    def passes_on(**kwargs):
        assert not kwargs, kwargs
        return bare()

    class Net(nn.Module):
        def __init__(self, num_classes, hidden=3):
            super().__init__()
            self.fc = nn.Linear(30, num_classes)
        def forward(self, x):
            return self.fc(x)

    class Lazy(nn.Sequential):
        def __init__(self):
            super().__init__(nn.LazyLinear(2))

    class Mine(MLP):
        name = "mine"

    def frozen():
        return bare().requires_grad_(False)

    def training():
        return nn.Sequential(bare(), nn.BatchNorm1d(2)).train()

    def broken():
        raise RuntimeError("first line\\nsecond line")

    def crashes():
        return nn.Linear(31, 2)

    def wrong_classes():
        return nn.Linear(30, 5)

    def not_a_tensor():
        class Pair(nn.Linear):
            def forward(self, x):
                return "nothing"
        return Pair(30, 2)

    def not_finite():
        model = nn.Linear(30, 2)
        nn.init.constant_(model.bias, float("nan"))
        return model

    def text():
        return "no model"

    instance = bare()
    number = 3
""")


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "mynet.py"
    path.write_text(OWN)
    return str(path)


def refused(spec, data, weights=None) -> str:
    with pytest.raises(BadInput) as caught:
        load_model(spec, data, 0, weights)
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestZooNames:
    def test_fields_follow_the_name(self, image):
        model = load_model("lenet-dlg:activation=relu,init=default", image(), seed=0)
        assert model.conv1.bias.abs().max() < 0.2  # PyTorch's rule: 1 / sqrt(75)
        assert isinstance(model.act1, torch.nn.ReLU)

    def test_unknown_names_and_fields_suggest_the_nearest(self, image):
        assert "did you mean 'lenet-dlg'?" in refused("lenet-dgl", image())
        assert "did you mean 'hidden'?" in refused("mlp:hiden=3", image())

    def test_parameter_count_leaves_buffers_out(self):
        assert parameter_count(torch.nn.BatchNorm1d(5)) == 10


class TestOwnModels:
    def test_a_factory_gets_what_its_signature_names(self, own, table):
        assert load_model(f"{own}:full", table, seed=5)(torch.rand(3, 30)).shape == (3, 2)
        seen = sys.modules["leakgauge_own_mynet"].seen
        assert (seen["input_shape"], seen["num_classes"], seen["seed"]) == ((30,), 2, 5)

    def test_values_behind_the_name_are_parsed(self, own, table):
        model = load_model(f"{own}:full:hidden=7,scale=1e-2,deep=true,note=x y", table, seed=0)
        seen = sys.modules["leakgauge_own_mynet"].seen
        assert model[1].out_features == 7
        assert (seen["scale"], seen["deep"], seen["note"]) == (0.01, True, "x y")

    @pytest.mark.parametrize("thing", ["bare", "Net", "Net:hidden=2", "Lazy", "passes_on", "Mine:hidden=3"])
    def test_functions_and_classes_work(self, own, table, thing):
        assert load_model(f"{own}:{thing}", table, seed=0)(torch.rand(3, 30)).shape == (3, 2)

    def test_a_module_path_works(self, tmp_path, monkeypatch, table):
        package = tmp_path / "leakgauge_test_pkg"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "nets.py").write_text(OWN)
        monkeypatch.syspath_prepend(tmp_path)
        assert parameter_count(load_model("leakgauge_test_pkg.nets:bare", table, seed=0)) == 62

    def test_the_seed_decides_and_the_global_stream_is_untouched(self, own, table):
        before = torch.get_rng_state()
        one, again, other = (load_model(f"{own}:bare", table, seed=s)[1].weight for s in (1, 1, 2))
        assert torch.equal(before, torch.get_rng_state())
        assert torch.equal(one, again)
        assert not torch.equal(one, other)

    def test_the_model_comes_in_eval_mode(self, own, table):
        model = load_model(f"{own}:training", table, seed=0)
        assert not any(m.training for m in model.modules())
        assert model[1].num_batches_tracked == 0  # the trial forward pass left no trace

    @pytest.mark.parametrize(
        ("thing", "says"),
        [
            ("broken", "RuntimeError: first line second line"),
            ("crashes", "must be runnable on (1, 30), got RuntimeError"),
            (
                "wrong_classes",
                "must be of shape (1, 2), got (1, 5); return one row of class logits for each sample, here 2",
            ),
            ("not_a_tensor", "must be a tensor of shape (1, 2), got str; wrap the model"),
            ("not_finite", "must be finite"),
            ("text", "must be a factory that returns a torch.nn.Module, got str"),
            ("instance", "wrap it in a function"),
            ("number", "an object of type int"),
            ("frozen", "at least one trainable parameter"),
            ("bare:depth=3", "unexpected keyword argument 'depth'"),
            ("full:hidden", "key=value"),
            ("full:hidden=many", "TypeError"),
            ("nothing", "nothing"),
        ],
    )
    def test_what_cannot_work_is_refused_in_one_line(self, own, table, thing, says):
        assert says in refused(f"{own}:{thing}", table)

    def test_missing_files_and_names_are_refused(self, table, tmp_path):
        assert "no such file" in refused(f"{tmp_path}/absent.py:make", table)
        assert "FILE.py:FACTORY" in refused("absent.py", table)

    def test_an_own_model_takes_a_checkpoint(self, tmp_path, own, table):
        weight = torch.rand(2, 30)
        torch.save({"0.weight": weight, "0.bias": torch.zeros(2)}, tmp_path / "w.pt")
        model = load_model(f"{own}:Lazy", table, seed=0, weights=str(tmp_path / "w.pt"))
        assert torch.equal(model[0].weight, weight)


def test_an_own_model_says_how_many_classes_it_tells_apart(tmp_path):
    (tmp_path / "five.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5))\n"
    )
    spec = DataSpec("rows", (6,), 2, "tabular")
    assert logits_of(f"{tmp_path / 'five.py'}:net", spec, 0) == 5
    assert logits_of(f"{tmp_path / 'five.py'}:net", DataSpec("rows", (7,), 2, "tabular"), 0) == 2, "said elsewhere"


def refused_of_checkpoint(spec, data, weights) -> str:
    with pytest.raises(BadInput) as caught:
        load_model(spec, data, 0, weights)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def saved(table) -> "OrderedDict[str, torch.Tensor]":
    return load_model("mlp", table, seed=9).state_dict()


class Evil:
    """Unpickles by making a folder: harmless, and easy to see."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_a_checkpoint_restores_the_parameters(tmp_path, table, saved, suffix):
    path = str(tmp_path / f"w{suffix}")
    safetensors.torch.save_file(saved, path) if suffix == ".safetensors" else torch.save(saved, path)
    model = load_model("mlp", table, seed=0, weights=path)
    assert all(torch.equal(saved[n], t) for n, t in model.state_dict().items())
    assert not model.training
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_wrappers_of_training_scripts_are_opened(tmp_path, table, saved, key):
    parallel = {f"module.{n}": t for n, t in saved.items()}
    torch.save({"epoch": 3, key: parallel}, tmp_path / "w.pt")
    model = load_model("mlp", table, seed=0, weights=str(tmp_path / "w.pt"))
    assert torch.equal(model.fc1.weight, saved["fc1.weight"])


def test_normalisation_does_not_change_what_fits(tmp_path, image):
    data = image(3, 9)
    saved = load_model("convnet:width=2,normalize=none", data, seed=1).state_dict()
    counts = [n for n in saved if n.endswith("num_batches_tracked")]
    torch.save({n: t for n, t in saved.items() if n not in counts}, tmp_path / "w.pt")  # as very old files
    model = load_model("convnet:width=2", data, seed=0, weights=str(tmp_path / "w.pt"))
    assert torch.equal(model.fc.weight, saved["fc.weight"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.pop("fc2.bias"), "no 'fc2.bias' (1 missing, 0 unknown)"),
        (lambda s: s.update(other=torch.ones(1)), "the unknown 'other' (0 missing, 1 unknown)"),
        (lambda s: s.update({"fc1.bias": torch.ones(3)}), "'fc1.bias' of shape (3,), not (128,)"),
        (lambda s: s.update({"fc1.bias": 3}), "int at 'fc1.bias'"),
        (lambda s: s["fc2.bias"].fill_(float("nan")), "must be finite"),
    ],
    ids=["missing", "unknown", "shape", "no tensor", "nan"],
)
def test_what_does_not_fit_is_named(tmp_path, table, saved, change, says):
    change(saved)
    torch.save(saved, tmp_path / "w.pt")
    assert says in refused_of_checkpoint("mlp", table, str(tmp_path / "w.pt"))


def test_a_bare_tensor_is_no_checkpoint(tmp_path, table):
    torch.save(torch.ones(3), tmp_path / "w.pt")
    assert "tensors by name, got Tensor" in refused_of_checkpoint("mlp", table, str(tmp_path / "w.pt"))


def test_missing_files_and_other_suffixes_are_refused(tmp_path, table):
    assert "no such file" in refused_of_checkpoint("mlp", table, str(tmp_path / "w.pt"))
    (tmp_path / "w.bin").touch()
    assert "a .safetensors, .pt or .pth file, got .bin" in refused_of_checkpoint("mlp", table, str(tmp_path / "w.bin"))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", b"PK\x03\x04 broken zip", b"\x80\x02"])
def test_corrupt_files_are_refused(tmp_path, table, suffix, content):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    assert "weights" in refused_of_checkpoint("mlp", table, str(path))


def test_a_truncated_checkpoint_is_refused(tmp_path, table, saved):
    for name, save in (("w.pt", torch.save), ("w.safetensors", safetensors.torch.save_file)):
        save(saved, tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        assert "weights" in refused_of_checkpoint("mlp", table, str(tmp_path / name))


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, table, how):
    mark, path = tmp_path / "executed", tmp_path / "w.pt"
    evil = {"fc1.weight": Evil(mark)}
    torch.save(evil, path) if how == "torch" else path.write_bytes(pickle.dumps(evil))
    message = refused_of_checkpoint("mlp", table, str(path))
    assert not mark.exists()
    assert "was not run" in message
    assert "weights_only" not in message  # torch's advice to switch the protection off is not passed on
    if how == "pickle":
        pickle.loads(path.read_bytes())
        assert mark.exists()  # the trap was live


def test_a_pickled_model_is_refused(tmp_path, table):
    torch.save(load_model("mlp", table, seed=0), tmp_path / "w.pt")
    assert "save model.state_dict()" in refused_of_checkpoint("mlp", table, str(tmp_path / "w.pt"))


def test_tensors_can_be_read_without_a_model(tmp_path, saved):
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in saved.items()}}, tmp_path / "model.pt")
    tensors = load_tensors(str(tmp_path / "model.pt"))
    assert tensors.keys() == saved.keys()
    assert all(torch.equal(tensors[name], saved[name]) for name in saved)
