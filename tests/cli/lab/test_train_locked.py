"""`leakgauge lab train-locked`: a lock beside BatchNorm alone and beside nothing; finished configurations are kept."""

import pytest

from leakgauge.cli.lab import train_locked

NET = "lenet-dlg:filters=4,activation=relu,init=default"
COMMAND = ("lab", "train-locked", "--data", "digits", "--model", NET, "--rounds", "1", "--clients", "2")


def test_every_lock_stands_beside_its_ablation(leakgauge):
    outcome = leakgauge(*COMMAND, "--lock", "key-lock:activation=sigmoid,length=8", "--json")
    assert outcome.code == 0, outcome.err
    none, plain, locked = outcome.json["configurations"]
    assert [r["configuration"] for r in (none, plain)] == ["none", "batchnorm-only"]
    assert len(locked["own"]) == len(locked["other_key"]) == 2
    assert len(locked["server_each"]) == 5
    assert 0 < locked["lock_share"] < 1
    assert none["own"][0] == none["server"], "without a lock everyone has the same model"


def test_what_is_finished_is_not_trained_again(leakgauge, tmp_path, monkeypatch):
    first = leakgauge(*COMMAND, "--out", "kept", "--json").json
    monkeypatch.setattr(train_locked, "train_locked", lambda *_: pytest.fail("trained again"))
    again = leakgauge(*COMMAND, "--out", "kept")
    assert again.code == 0, again.err
    assert "random key, first lock" in again.out
    assert (tmp_path / "kept" / "train-locked.json").exists()
    assert len(first["configurations"]) == 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--lock", "gaussian:std=1"), "--lock must be key-lock"),
        (("--lock", "key-lock+prune"), "--lock must be key-lock"),
        (("--lock", "key-lock:length=0"), "length"),
        (("--lock", "key-lock:rounds=3"), "they are for attacks"),
        (("--clients", "0"), "--clients"),
        (("--lr", "0"), "--lr must be above 0"),
        (("--lr-drops", "60,x"), "--lr-drops must be numbers of rounds with commas between them, or none"),
        (("--lr-drops", "0"), "for example --lr-drops 60,120,160"),
        (("--weight-decay", "-1"), "--weight-decay"),
        (("--random-keys", "0"), "--random-keys"),
        (("--lock", "key-lock:told=gradient"), "they are for attacks"),
        (("--model", "no-such"), "no-such"),
    ],
)
def test_bad_input_is_one_line(leakgauge, one_line, flags, said):
    assert said in one_line(leakgauge(*COMMAND, *flags))


def test_the_other_training_says_where_to_go(leakgauge, one_line):
    asked = ("train", "--data", "digits", "--model", "lenet-dlg", "--defense", "key-lock", "--rounds", "1")
    assert "leakgauge lab train-locked" in one_line(leakgauge(*asked))
