"""Updates are recorded whole, bounded, and without the private samples unless they are asked for."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.errors import BadInput
from leakgauge.recording.recorded_folder import LEFT_OUT, Origin
from leakgauge.recording.recorder import Recorder, batchnorm_mode, plain_name


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def samples() -> tuple[Tensor, Tensor]:
    return torch.rand(6, 1, 2, 2, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2])


def train(model: nn.Module, lr: float = 0.1) -> None:
    inputs, labels = samples()
    optimizer = torch.optim.SGD(model.parameters(), lr)
    cross_entropy(model(inputs), labels).backward()
    optimizer.step()


def described(folder: Path, number: int = 0) -> dict[str, object]:
    told: dict[str, object] = json.loads((folder / f"update-{number:05d}.json").read_text())
    return told


def test_a_weight_difference_is_what_the_block_moved(tmp_path: Path) -> None:
    model = network()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    with Recorder(tmp_path).weight_delta(model, samples=6, lr=0.1, client="a", round=3):
        train(model)
    written = load_file(tmp_path / "update-00000.safetensors")
    for name, parameter in model.named_parameters():
        assert torch.equal(written[name], parameter.detach() - before[name])
    assert torch.equal(written["2.running_mean"], model.get_buffer("2.running_mean"))
    assert "2.num_batches_tracked" not in written
    told = described(tmp_path)
    assert told["kind"] == "weight_delta"
    assert (told["samples"], told["lr"], told["steps"], told["client"], told["round"]) == (6, 0.1, 1, "a", 3)
    assert told["batchnorm"] == "train"
    start = load_file(tmp_path / str(told["weights"]))
    assert torch.equal(start["1.weight"], before["1.weight"])


def test_a_gradient_is_what_backward_left(tmp_path: Path) -> None:
    model = network().eval()
    unused = nn.Parameter(torch.ones(2))
    model.register_parameter("unused", unused)
    cross_entropy(model(samples()[0]), samples()[1]).backward()
    Recorder(tmp_path).gradient(model, samples=6)
    written = load_file(tmp_path / "update-00000.safetensors")
    assert torch.equal(written["1.weight"], model.get_parameter("1.weight").grad)  # type: ignore[arg-type]
    assert torch.equal(written["unused"], torch.zeros(2))
    assert described(tmp_path)["batchnorm"] == "eval"


def test_a_gradient_before_backward_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="after backward"):
        Recorder(tmp_path).gradient(network(), samples=1)


def test_private_samples_are_written_only_when_asked_and_all_files_are_the_owners(tmp_path: Path) -> None:
    for keep in (False, True):
        folder, model = tmp_path / str(keep), network()
        with Recorder(folder, keep_private=keep).weight_delta(model, samples=6, lr=0.1, private=samples()):
            train(model)
        assert bool(list(folder.glob("private-*"))) == keep
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert torch.equal(load_file(folder / "private-00000.safetensors")["inputs"], samples()[0])


def test_the_oldest_stay_and_what_is_left_out_is_said_once_and_counted(tmp_path: Path) -> None:
    recorder, model = Recorder(tmp_path, updates=2), network()
    for number in range(2):
        with recorder.weight_delta(model, samples=6, lr=0.1, round=number):
            train(model)
    with pytest.warns(UserWarning, match="later ones are left out"), recorder.weight_delta(model, samples=6, lr=0.1):
        train(model)
    with recorder.weight_delta(model, samples=6, lr=0.1):
        train(model)
    assert len(list(tmp_path.glob("update-*.json"))) == 2
    assert json.loads((tmp_path / LEFT_OUT).read_text())["updates"] == 2
    again = Recorder(tmp_path, updates=5)
    assert (again.written, again.left_out, again.full) == (2, 2, True)


def test_bytes_are_bounded(tmp_path: Path) -> None:
    recorder, model = Recorder(tmp_path, megabytes=0.004), network()

    def record(times: int) -> None:
        for _ in range(times):
            with recorder.weight_delta(model, samples=6, lr=0.1):
                train(model)

    with pytest.warns(UserWarning, match="left out"):
        record(6)
    assert 0 < recorder.written < 6
    assert sum(path.stat().st_size for path in tmp_path.glob("*.safetensors")) == recorder.bytes <= 0.004 * 2**20


def test_a_restarted_loop_goes_on_behind_the_last_and_shares_weights(tmp_path: Path) -> None:
    for _ in range(2):
        model = network()
        with Recorder(tmp_path).weight_delta(model, samples=6, lr=0.1):
            train(model)
    assert len(list(tmp_path.glob("update-*.json"))) == 2
    assert len(list(tmp_path.glob("weights-*"))) == 1


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Recorder(tmp_path).weight_delta(network(), samples=1, lr=0.1):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrapped", ["_module.fc.weight", "module.fc.weight", "_orig_mod.module.fc.weight"])
def test_names_lose_what_wrappers_put_before_them(wrapped: str) -> None:
    assert plain_name(wrapped) == "fc.weight"


@pytest.mark.parametrize(
    "wrong", [{"samples": 0}, {"samples": 1.5}, {"lr": 0.0}, {"lr": float("nan")}, {"epochs": 0}, {"round": -1}]
)
def test_wrong_facts_are_refused_in_one_line(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=f"recorded {next(iter(wrong))}"):
        Origin(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [{"updates": 0}, {"megabytes": 0}])
def test_limits_that_allow_nothing_are_refused(tmp_path: Path, limits: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="recorder limits"):
        Recorder(tmp_path, **limits)


def test_steps_follow_from_samples_epochs_and_mini_batch() -> None:
    assert Origin(samples=10, epochs=2, batch_size=4).steps == 6
    assert Origin(samples=10).steps == 1
    assert Origin(batch_size=4).steps is None
    assert Origin(epochs=3).steps == 3


def test_batchnorm_mode_is_that_of_its_layers() -> None:
    assert batchnorm_mode(network().train()) == "train"
    assert batchnorm_mode(network().eval()) == "eval"
    assert batchnorm_mode(nn.Linear(2, 2).train()) == "eval"


def test_a_broken_count_is_named(tmp_path: Path) -> None:
    (tmp_path / LEFT_OUT).write_text("[")
    with pytest.raises(BadInput, match=LEFT_OUT):
        Recorder(tmp_path)
