"""Updates from files: three formats, one client or many, and nothing in a file is executed."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from leakgauge.client.fedavg import fedavg
from leakgauge.client.fedsgd import fedsgd
from leakgauge.errors import BadInput
from leakgauge.recording.saved_update import read_update
from leakgauge.types import Client


def save(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **{n: t.numpy() for n, t in tensors.items()})
    elif path.suffix == ".safetensors":
        save_file({n: t.contiguous() for n, t in tensors.items()}, path)
    else:
        torch.save(tensors, path)
    return path


@pytest.fixture
def net(model):
    return model().float()


@pytest.fixture
def gradient(net, victims):
    return dict(fedsgd()(net, victims(3, 1, torch.float32), (0, 1, 2)).tensors)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_many_clients_come_back_as_saved(net, gradient, tmp_path, suffix):
    found = read_update(save(tmp_path / f"update{suffix}", gradient), "gradient", net)
    assert found.trials == 3
    assert all(torch.equal(found.tensors[n], g) for n, g in gradient.items())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_one_client_gets_a_trials_axis(net, gradient, tmp_path, suffix):
    one = {n: g[0].clone() for n, g in gradient.items()}
    found = read_update(save(tmp_path / f"update{suffix}", one), "weight_delta", net)
    assert found.kind == "weight_delta"
    assert found.trials == 1
    assert all(torch.equal(found.tensors[n][0], g) for n, g in one.items())


def test_half_precision_becomes_float32_and_double_stays(net, gradient, tmp_path):
    for saved, wanted in ((torch.float16, torch.float32), (torch.float64, torch.float64)):
        path = save(tmp_path / "update.pt", {n: g.to(saved) for n, g in gradient.items()})
        assert all(t.dtype == wanted for t in read_update(path, "gradient", net).tensors.values())


@pytest.mark.parametrize("clients", ["one", "many"])
def test_batchnorm_buffers_are_kept_apart(model, victims, tmp_path, clients):
    net = model("resnet20:width=2").float()
    local = Client(kind="fedavg", batchnorm="train")
    shared = fedavg(local)(net, victims(2, 2, torch.float32), (0, 1))
    everything = {**shared.tensors, **shared.buffers}
    if clients == "one":
        everything = {n: t[0].clone() for n, t in everything.items()}
    found = read_update(save(tmp_path / "update.pt", everything), "weight_delta", net)
    assert found.trials == (1 if clients == "one" else 2)
    assert found.buffers.keys() == shared.buffers.keys()
    assert found.tensors.keys() == shared.tensors.keys()


class Malicious:
    def __init__(self, victim: Path):
        self.victim = victim

    def __reduce__(self):
        return os.mkdir, (str(self.victim),)


@pytest.mark.parametrize("suffix", [".pt", ".bin", ".npz"])
def test_a_malicious_pickle_is_refused_and_not_executed(net, tmp_path, suffix):
    path, victim = tmp_path / f"update{suffix}", tmp_path / "owned"
    if suffix == ".npz":
        np.savez(path, **{"fc1.weight": np.array([Malicious(victim)], dtype=object)})
    elif suffix == ".pt":
        torch.save({"fc1.weight": Malicious(victim)}, path)
    else:
        path.write_bytes(pickle.dumps(Malicious(victim)))
    with pytest.raises(BadInput, match=r"update file .*; save it as .safetensors"):
        read_update(path, "gradient", net)
    assert not victim.exists()


def test_the_malicious_pickle_would_have_done_harm(tmp_path):
    """Otherwise the test above proves nothing."""
    victim = tmp_path / "owned"
    pickle.loads(pickle.dumps(Malicious(victim)))
    assert victim.is_dir()


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
@pytest.mark.parametrize("content", [b"", b"not an update at all", b"PK\x03\x04 half a zip"])
def test_a_broken_file_is_refused_in_one_line(net, tmp_path, suffix, content):
    path = tmp_path / f"update{suffix}"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="update file") as caught:
        read_update(path, "gradient", net)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_is_refused(net, gradient, tmp_path):
    for suffix in (".safetensors", ".pt", ".npz"):
        path = save(tmp_path / f"update{suffix}", gradient)
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(BadInput, match="update file"):
            read_update(path, "gradient", net)


def test_a_missing_file_is_refused(net, tmp_path):
    with pytest.raises(BadInput, match="an existing file, got no such file"):
        read_update(tmp_path / "none.pt", "gradient", net)


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"a": 1}, {}, {0: torch.zeros(2), "a": torch.zeros(2)}])
def test_anything_but_named_tensors_is_refused(net, tmp_path, content):
    torch.save(content, tmp_path / "update.pt")
    with pytest.raises(BadInput, match="a mapping from parameter names to tensors"):
        read_update(tmp_path / "update.pt", "gradient", net)


def test_another_models_update_is_refused(net, model, victims, tmp_path):
    other = fedsgd()(model("lenet-dlg:filters=2").float(), victims(1, 1, torch.float32), (0,))
    with pytest.raises(BadInput, match="check that --model is the model this update belongs to"):
        read_update(save(tmp_path / "update.pt", dict(other.tensors)), "gradient", net)


def test_a_scalar_in_place_of_a_tensor_is_refused(net, gradient, tmp_path):
    tensors = {n: torch.tensor(1.0) if n == "fc1.weight" else g for n, g in gradient.items()}
    with pytest.raises(BadInput, match=r"'fc1.weight' must be of shape"):
        read_update(save(tmp_path / "update.pt", tensors), "gradient", net)


def test_a_nan_is_refused(net, gradient, tmp_path):
    gradient["fc1.bias"][1, 0] = float("nan")
    with pytest.raises(BadInput, match=r"'fc1\.bias' must be finite"):
        read_update(save(tmp_path / "update.npz", gradient), "gradient", net)
