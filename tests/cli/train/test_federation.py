"""`leakgauge train`: a table, a JSON document, and what it refuses."""

import json

import pytest

from leakgauge.cli.main import main

SHORT = ["train", "--data", "digits", "--model", "mlp", "--rounds", "2", "--partition", "kind=iid,clients=20"]


def test_a_table_with_and_without_the_defense(capsys):
    assert main([*SHORT, "--defense", "gaussian:std=0.01"]) == 0
    shown = capsys.readouterr().out
    assert "none" in shown
    assert "gaussian:std=0.01" in shown
    assert "2 rounds, 10 of 20 clients" in shown


def test_json_has_the_documented_keys(capsys, tmp_path):
    assert main([*SHORT, "--json", "--out", str(tmp_path / "t"), "--federation", "per_round=4"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"rounds", "accuracy", "round_seconds", "bytes_up", "guarantee"} <= result.keys()
    assert result["rounds"][0].keys() == {"round", "accuracy", "seconds"}
    assert json.loads((tmp_path / "t" / "train.json").read_text()) == result


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "rounds"),
        (["--partition", "kind=none"], "kind=iid"),
        (["--federation", "per_rond=3"], "per_round"),
        (["--defense", "gausian"], "gaussian"),
        (["--federation", "per_round=50"], "at most 20"),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, arguments, said):
    assert main([*SHORT, *arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert said in error[-1]


def test_an_aggregator_and_encryption_say_who_holds_the_keys(capsys):
    flags = ["--aggregator", "fedboosting", "--encryption", "paillier:bits=256,insecure_demo=true"]
    assert main([*SHORT, "--model", "mlp:hidden=2", *flags, "--poison", "kind=noise"]) == 0
    shown = capsys.readouterr().out
    assert "none, fedboosting, paillier:bits=256,insecure_demo=true" in shown
    assert "a poisoned client's weight is" in shown
    assert "Any client together with the server reads every client's update" in shown


def test_learned_proportions_say_what_a_poisoned_client_weighs_and_that_mixtures_are_tried(capsys):
    assert main([*SHORT, "--aggregator", "learned-proportions:lr=0.1", "--poison", "kind=flip,clients=5"]) == 0
    shown = capsys.readouterr().out
    assert "none, learned-proportions:lr=0.1" in shown
    assert "a poisoned client's weight is" in shown
    assert "Clients try mixtures of each other's models" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--aggregator", "fedbosting"], "fedboosting"),
        (["--aggregator", "fedadam:lr=0"], "above 0"),
        (["--aggregator", "learned-proportions:lr=0"], "above 0"),
        (["--aggregator", "learned-proportion"], "learned-proportions"),
        (["--aggregator", "fedboosting", "--aggregator", "fedavg"], "given once"),
        (["--encryption", "pailier"], "paillier"),
        (["--encryption", "paillier:bits=128"], "2048 or 3072"),
        (["--poison", "kind=noisy"], "noise"),
        (["--poison", "clients=20"], "fewer than the 20 clients"),
    ],
)
def test_bad_aggregation_is_one_line_and_code_2(capsys, arguments, said):
    assert main([*SHORT, *arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert said in error[-1]


def test_a_centralised_model_stands_beside_the_federation(capsys):
    assert main(["train", "--rounds", "2", "--federation", "per_round=2", "--centralised"]) == 0
    out = capsys.readouterr().out
    assert out.index("centralised") < out.index("none")
