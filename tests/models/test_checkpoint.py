"""Checkpoints that fit, that do not fit, and that would like to run code."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import safetensors.torch
import torch

from leakgauge.errors import BadInput
from leakgauge.models import load_model, load_tensors


def refused(spec, data, weights) -> str:
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
    assert says in refused("mlp", table, str(tmp_path / "w.pt"))


def test_a_bare_tensor_is_no_checkpoint(tmp_path, table):
    torch.save(torch.ones(3), tmp_path / "w.pt")
    assert "tensors by name, got Tensor" in refused("mlp", table, str(tmp_path / "w.pt"))


def test_missing_files_and_other_suffixes_are_refused(tmp_path, table):
    assert "no such file" in refused("mlp", table, str(tmp_path / "w.pt"))
    (tmp_path / "w.bin").touch()
    assert "a .safetensors, .pt or .pth file, got .bin" in refused("mlp", table, str(tmp_path / "w.bin"))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", b"PK\x03\x04 broken zip", b"\x80\x02"])
def test_corrupt_files_are_refused(tmp_path, table, suffix, content):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    assert "weights" in refused("mlp", table, str(path))


def test_a_truncated_checkpoint_is_refused(tmp_path, table, saved):
    for name, save in (("w.pt", torch.save), ("w.safetensors", safetensors.torch.save_file)):
        save(saved, tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        assert "weights" in refused("mlp", table, str(tmp_path / name))


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, table, how):
    mark, path = tmp_path / "executed", tmp_path / "w.pt"
    evil = {"fc1.weight": Evil(mark)}
    torch.save(evil, path) if how == "torch" else path.write_bytes(pickle.dumps(evil))
    message = refused("mlp", table, str(path))
    assert not mark.exists()
    assert "was not run" in message
    assert "weights_only" not in message  # torch's advice to switch the protection off is not passed on
    if how == "pickle":
        pickle.loads(path.read_bytes())
        assert mark.exists()  # the trap was live


def test_a_pickled_model_is_refused(tmp_path, table):
    torch.save(load_model("mlp", table, seed=0), tmp_path / "w.pt")
    assert "save model.state_dict()" in refused("mlp", table, str(tmp_path / "w.pt"))


def test_tensors_can_be_read_without_a_model(tmp_path, saved):
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in saved.items()}}, tmp_path / "model.pt")
    tensors = load_tensors(str(tmp_path / "model.pt"))
    assert tensors.keys() == saved.keys()
    assert all(torch.equal(tensors[name], saved[name]) for name in saved)
