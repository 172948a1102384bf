"""One place gives every audit its victims: simulated, saved, recorded, blind."""

from __future__ import annotations

import pytest
import torch

from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.models import load_model
from leakgauge.recording.loading import setup_for
from leakgauge.types import LocalTraining, Scenario

MODEL = "mlp:hidden=16"


@pytest.fixture
def saved(tmp_path):
    """Two clients' gradients in a file, and their samples in another."""
    victims = draw_victims(load("digits", "test"), trials=2, batch_size=3, seed=8)
    model = load_model(MODEL, load("digits").spec, seed=0)
    torch.save(dict(client_step(LocalTraining())(model, victims, (0, 1)).tensors), tmp_path / "update.pt")
    (tmp_path / "own.py").write_text(
        "from leakgauge.data import draw_victims, load\n"
        "def batch():\n"
        "    b = draw_victims(load('digits', 'test'), trials=2, batch_size=3, seed=8)\n"
        "    return b.inputs.flatten(0, 1), b.labels.flatten()\n"
        "def net():\n"
        "    from leakgauge.models import load_model\n"
        f"    return load_model('{MODEL}', load('digits').spec, seed=0)\n"
    )
    return tmp_path


def test_simulated_clients_have_samples_and_no_update_yet():
    setup = setup_for(Scenario(model=MODEL, data="digits", trials=2), None, "cpu")
    assert setup.scored
    assert setup.victims.shared is None
    assert setup.victims.trials == 2


def test_a_saved_update_is_scored_where_its_batch_is_there_and_blind_where_it_is_not(saved):
    own = {"update": str(saved / "update.pt"), "model": f"{saved / 'own.py'}:net"}
    scored = setup_for(Scenario(**own, data=f"{saved / 'own.py'}:batch"), None, "cpu")
    assert (scored.scored, scored.victims.trials, scored.victims.samples) == (True, 2, 3)
    assert scored.victims.belonging is not None
    blind = setup_for(Scenario(**own | {"model": MODEL}, data="digits", batch_size=3), None, "cpu")
    assert (blind.scored, blind.victims.trials, blind.victims.samples) == (False, 2, 3)
    assert blind.scenario.trials == 2
    for name, tensor in scored.victims.shared.tensors.items():
        assert torch.equal(blind.victims.shared.tensors[name], tensor)


def test_what_was_checked_elsewhere_is_not_replayed_again(saved):
    own = {"update": str(saved / "update.pt"), "model": f"{saved / 'own.py'}:net"}
    setup = setup_for(Scenario(**own, data=f"{saved / 'own.py'}:batch"), None, "cpu", checked=False)
    assert setup.victims.belonging is None
