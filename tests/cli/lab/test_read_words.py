"""`leakgauge lab read-words`: a table, a JSON document, and one line for what cannot work."""

import json

from leakgauge.cli.main import main

SHORT = [
    "lab",
    "read-words",
    "--aggregator",
    "fedavg",
    "--device",
    "cpu",
    "--training",
    "rounds=1,words=20,tested=5,longest=3,image_width=48,width=2,batch_size=10",
]


def test_a_table_and_numbers(capsys, tmp_path):
    assert main([*SHORT, "--data-root", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "fedavg" in shown
    assert "DejaVuSans.ttf" in shown
    assert "No real words" in shown
    assert json.loads((tmp_path / "out" / "read-words.json").read_text())["training"]["words"] == 20


def test_json(capsys, tmp_path):
    assert main([*SHORT, "--data-root", str(tmp_path), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert set(run["read"]) == {"flat", "scene", "rendered"}


def test_bad_input_is_one_line_and_code_2(capsys, tmp_path):
    for more, says in (
        (["--training", "longest=12,image_width=64"], "at least 96"),
        (["--fonts", str(tmp_path)], "families"),
        (["--aggregator", "fedboost"], "fedboosting"),
        (["--encryption", "rsa"], "paillier"),
    ):
        assert main([*SHORT, "--data-root", str(tmp_path), *more]) == 2, more
        (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
        assert says in line
