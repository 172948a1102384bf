"""A checkpoint that --weights reads, the same after an interruption, and refusals before anything is trained."""

import json

import pytest

from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.federation import rounds
from leakgauge.federation.rounds import train
from leakgauge.models import load_model
from leakgauge.types import Training

COMMAND = ["train", "model", "--data", "digits", "--model", "mlp", "--training", "rounds=20,policy=7,augment=false"]


def test_trains_and_the_checkpoint_is_read(leakgauge, tmp_path):
    result = leakgauge(*COMMAND, "--out", tmp_path / "net.safetensors", "--json")
    assert result.code == 0, result.err
    said = json.loads(result.out)
    assert said["training"]["policy"] == "7"
    assert said["accuracy"] > 0.3
    assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]
    weights = ["--weights", tmp_path / "net.safetensors", "--trials", "1", "--out", tmp_path / "run"]
    assert leakgauge("attack", "linear", "--data", "digits", "--model", "mlp", *weights).code == 0


def test_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    public = load("digits", "train")
    model = load_model("mlp", public.spec, 0)
    training = Training(rounds=20, optimizer="nesterov", lr=0.05, policy="7-1", augment=True)
    whole = train(model, public, training, 0).state_dict()

    def stop(done):
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model, public, training, 0, kept=tmp_path / "kept", watch=stop)
    begun = []
    original = rounds._resumed
    monkeypatch.setattr(rounds, "_resumed", lambda *a: begun.append(original(*a)) or begun[0])
    again = train(model, public, training, 0, kept=tmp_path / "kept").state_dict()
    assert begun == [11]
    assert all((whole[name] == again[name]).all() for name in whole)


def test_a_kept_state_of_another_model_is_refused(tmp_path):
    public = load("digits", "train")
    train(load_model("mlp:hidden=8", public.spec, 0), public, Training(rounds=2), 0, kept=tmp_path / "kept")
    with pytest.raises(BadInput, match="remove that file"):
        train(load_model("mlp:hidden=9", public.spec, 0), public, Training(rounds=2), 0, kept=tmp_path / "kept")


def test_a_kept_state_of_another_training_or_a_damaged_one_is_refused(tmp_path):
    public = load("digits", "train")
    model = load_model("mlp:hidden=8", public.spec, 0)
    for name, seed in (("mine", 0), ("other", 1)):
        train(model, public, Training(rounds=2), seed, kept=tmp_path / name)
    (tmp_path / "other").replace(tmp_path / "mine")
    with pytest.raises(BadInput, match="belongs to something else"):
        train(model, public, Training(rounds=2), 0, kept=tmp_path / "mine")
    (tmp_path / "mine").write_bytes(b"x")
    with pytest.raises(BadInput, match="remove that file"):
        train(model, public, Training(rounds=2), 0, kept=tmp_path / "mine")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--out", "net.bin"], "must be a .safetensors file"),
        (["--training", "rounds=2,policy=50"], "operations 0 to 49"),
        (["--data", "breast-cancer", "--training", "rounds=2,augment=true"], "given for pictures"),
    ],
)
def test_bad_input_is_one_line(leakgauge, tmp_path, more, said):
    result = leakgauge(*COMMAND, "--out", "net.safetensors", *more)
    assert result.code == 2
    assert said in result.err
    assert len([line for line in result.err.splitlines() if line.startswith("leakgauge: ")]) == 1
    assert not list(tmp_path.glob("*.safetensors"))
