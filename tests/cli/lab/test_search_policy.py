"""The command searches, resumes and refuses; its table names the operations."""

import json

import pytest

COMMAND = [
    "lab",
    "search-policy",
    "--model",
    "mlp:hidden=16",
    "--data",
    "digits",
    "--candidates",
    "12",
    "--pictures",
    "4",
    "--batches",
    "1",
    "--batch-size",
    "8",
    "--training",
    "rounds=3",
]


def test_the_list_is_printed_and_kept(leakgauge, tmp_path):
    result = leakgauge(*COMMAND, "--out", tmp_path / "search", "--least-accuracy", "-1e9")
    assert result.code == 0, result.err
    assert "12 of 12 reach" in result.out or "of 12 reach" in result.out
    assert "--model mlp:hidden=16 --data digits --defense ats:policy=" in result.out
    assert (tmp_path / "search" / "policies.json").exists()


def test_json_is_the_same_again_and_scores_are_not_made_twice(leakgauge, tmp_path):
    first = leakgauge(*COMMAND, "--out", tmp_path / "search", "--json")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "search" / "scores").iterdir()}
    second = leakgauge(*COMMAND, "--out", tmp_path / "search", "--json")
    assert json.loads(first.out) == json.loads(second.out)
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "search" / "scores").iterdir()}


def test_single_operations_are_listed_by_privacy_alone(leakgauge, tmp_path):
    without = [word for word in COMMAND if word not in ("--candidates", "12")]
    result = leakgauge(*without, "--single", "--out", tmp_path / "single", "--json", "--top", "29")
    found = json.loads(result.out)
    assert found["kept"] == 29
    assert found["search"]["single"]
    assert [row["privacy"] for row in found["best"]] == sorted(row["privacy"] for row in found["best"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--candidates", "0"], "candidates must be at least 1"),
        (["--single"], "left out with --single"),
        (["--batch-size", "1"], "compared pairwise"),
        (["--data", "breast-cancer"], "policies transform pictures"),
        (["--pictures", "100000"], "lower --pictures"),
    ],
)
def test_bad_input_is_one_line(leakgauge, tmp_path, more, said):
    result = leakgauge(*COMMAND, "--out", tmp_path / "search", *more)
    assert result.code == 2
    assert said in result.err
    assert len([line for line in result.err.splitlines() if line.startswith("leakgauge: ")]) == 1
    assert not (tmp_path / "search").exists()


def test_a_folder_of_another_search_is_refused(leakgauge, tmp_path):
    assert leakgauge(*COMMAND, "--out", tmp_path / "search").code == 0
    result = leakgauge(*COMMAND, "--out", tmp_path / "search", "--seed", "1")
    assert result.code == 2
    assert "differs in seed" in result.err
