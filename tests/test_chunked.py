"""Chunks give what all trials at once give."""

import pytest
import torch

from leakgauge import chunked
from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.data import draw_victims, load
from leakgauge.fl.fedsgd import fedsgd
from leakgauge.fl.observe import facts_about, observe
from leakgauge.models import load_model
from leakgauge.types import LocalTraining, threat_model


@pytest.fixture(scope="module")
def seen():
    digits = load("digits")
    net, batch = load_model("mlp:hidden=8,activation=sigmoid", digits.spec, 0), draw_victims(digits, 5, 1, 0)
    facts = facts_about(net, batch, digits.spec, LocalTraining(), None)
    return observe(net, fedsgd()(net, batch, range(5)), threat_model("honest-but-curious+labels"), facts)


@pytest.mark.parametrize("attack", [Linear(), DLG(steps=1, restarts=2, threshold=1e-4)], ids=["linear", "dlg"])
def test_chunks_give_what_all_at_once_gives(seen, monkeypatch, attack):
    whole = chunked.reconstruct(attack, seen, range(5), lambda _: None)
    monkeypatch.setattr(chunked, "chunks", lambda *_: iter([[0, 1], [2, 3], [4]]))
    told: list[float] = []
    parts = chunked.reconstruct(attack, seen, range(5), told.append)
    torch.testing.assert_close(parts.inputs, whole.inputs, rtol=1e-2, atol=1e-3)
    assert torch.equal(parts.labels, whole.labels)
    assert parts.objective.shape == parts.steps.shape == parts.evaluations.shape == (5,)
    assert parts.seconds > 0
    assert told == sorted(told)
    assert all(0 <= share <= 1 for share in told)
    if whole.trace is not None:
        assert len(parts.trace) == 5
        torch.testing.assert_close(parts.trace[:, 0], whole.trace[:, 0])
    else:
        assert parts.trace is None


def test_each_trial_keeps_its_own_seed(seen, monkeypatch):
    seeds = []

    class Note(Linear):
        def reconstruct(self, observation, its_seeds, progress):
            seeds.extend(its_seeds)
            return super().reconstruct(observation, its_seeds, progress)

    monkeypatch.setattr(chunked, "chunks", lambda *_: iter([[0, 1, 2], [3, 4]]))
    chunked.reconstruct(Note(), seen, (9, 8, 7, 6, 5), lambda _: None)
    assert seeds == [9, 8, 7, 6, 5]
