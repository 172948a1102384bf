"""`leakgauge lab two-gaussians`: a table, a JSON document and a picture."""

import json

from leakgauge.cli.main import main

SHORT = ["lab", "two-gaussians", "--case", "flipped", "--seeds", "2", "--rounds", "1", "--samples", "40"]
TWO = ["--aggregator", "fedavg", "--aggregator", "fedboosting"]


def test_a_table_numbers_and_a_picture(capsys, tmp_path):
    assert main([*SHORT, *TWO, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "fedboosting" in shown
    assert "2 seeds from 0, 1 rounds" in shown
    assert json.loads((tmp_path / "two-gaussians.json").read_text())["seeds"] == 2
    assert (tmp_path / "boundaries.svg").read_text().startswith("<?xml")


def test_json(capsys):
    assert main([*SHORT, *TWO, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [r["aggregator"] for r in result["rows"]] == ["fedavg", "fedboosting"]
    assert len(result["runs"]) == 4


def test_bad_input_is_one_line_and_code_2(capsys):
    assert main(["lab", "two-gaussians", "--case", "flip"]) == 2
    assert "flipped" in capsys.readouterr().err
    assert main(["lab", "two-gaussians", "--seeds", "0"]) == 2
    assert "seeds" in capsys.readouterr().err
    assert main(["lab", "two-gaussians", "--device", "cuda"]) == 2
    assert "auto or cpu" in capsys.readouterr().err
