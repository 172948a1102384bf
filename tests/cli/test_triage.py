"""`leakgauge triage`: a table, a JSON document, and exit code 2 for an update that is not what it is said to be."""

import pytest
import torch

from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.models import load_model
from leakgauge.types import Client

COMMAND = ("triage", "--model", "mlp:hidden=40", "--data", "digits", "--batch-size", 2)


@pytest.fixture
def save(tmp_path):
    """save(change): what one client shared, changed, as update.pt."""

    def write(change=lambda tensors: tensors, local=None):
        model = load_model("mlp:hidden=40", load("digits").spec, 0)
        shared = client_step(local or Client())(model, draw_victims(load("digits"), 1, 2, 3), (0,))
        torch.save(change({n: t[0] for n, t in shared.tensors.items()}), tmp_path / "update.pt")
        return "--update", "update.pt"

    return write


def test_table_json_and_file(leakgauge, tmp_path):
    outcome = leakgauge(*COMMAND)
    assert outcome.code == 0
    assert "peeling" in outcome.out
    outcome = leakgauge(*COMMAND, "--json", "--out", "kept", "--defense", "gaussian:std=0.1")
    assert outcome.code == 0
    assert {"id", "what", "value", "meaning", "severity"} == set(outcome.json["clues"][0])
    assert (tmp_path / "kept" / "triage.json").is_file()


def test_a_saved_update_is_looked_at(leakgauge, save):
    outcome = leakgauge(*COMMAND, *save(), "--json")
    assert outcome.code == 0
    assert "wrong" not in {clue["severity"] for clue in outcome.json["clues"]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: {n: 0 * v for n, v in t.items()}, "zeros only"),
        (lambda t: {n: v * float("nan") for n, v in t.items()}, "NaN"),
        (lambda t: {n: v[:-1] for n, v in t.items()}, "of shape"),
        (lambda t: {n: -v for n, v in t.items()}, "the opposite sign"),
        (lambda t: {n: 1000 * v for n, v in t.items()}, "times as large"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(leakgauge, save, change, says):
    outcome = leakgauge(*COMMAND, *save(change))
    assert outcome.code == 2
    assert says in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_a_wrong_learning_rate_is_said(leakgauge, save):
    given = save(local=Client(kind="fedavg", lr=0.1))
    assert leakgauge(*COMMAND, *given, "--local", "kind=fedavg,lr=0.1").code == 0
    outcome = leakgauge(*COMMAND, *given, "--local", "kind=fedavg,lr=0.001")
    assert outcome.code == 2
    assert "0.001 is claimed" in outcome.err
    outcome = leakgauge("attack", "linear", *COMMAND[1:], *given, "--local", "kind=fedavg,lr=0.001", "--out", "run")
    assert outcome.code == 0
    assert "0.001 is claimed" in outcome.err


def test_a_defense_does_not_go_with_a_file(leakgauge, save):
    outcome = leakgauge(*COMMAND, *save(), "--defense", "sign")
    assert outcome.code == 2
    assert "--defense" in outcome.err
