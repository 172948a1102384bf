"""An update of a system that is not ours: read, held against its batch, and audited."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from leakgauge import audit_update
from leakgauge.audit.run import run_audit
from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.recording.own_update import blind_setup, holds_batch, scored_setup, setup_for
from leakgauge.recording.triage import first_observation
from leakgauge.report import from_json, to_json
from leakgauge.report.officer import to_officer
from leakgauge.types import Batch, Client, Fact, Scenario
from leakgauge.verdict.summary import headline

MINE = """
import torch
from torch import nn


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 5))


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(4, 1, 4, 6, generator=generator), torch.tensor([3, 1, 0, 1])


def halves(split):
    inputs, labels = batch()
    return (inputs, labels) if split == "test" else (torch.rand(9, 1, 4, 6), torch.arange(9) % 5)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with the user's file; gives the module's names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    names: dict = {}
    exec(MINE, names)
    return names


@pytest.fixture
def client(mine):
    """A model and the gradient of the batch, saved as the scenario says."""
    torch.manual_seed(0)
    model = mine["net"]()
    torch.save(model.state_dict(), "model.pt")
    return model, gradient(model, *mine["batch"]())


def gradient(model, inputs, labels):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def scenario(**changes):
    given = {"model": "mine.py:net", "weights": "model.pt", "data": "mine.py:batch", "update": "update.pt"}
    return Scenario(**given | {"attacks": ("peeling",)} | changes)


def saved(tensors, scale=1.0):
    torch.save({n: scale * t for n, t in tensors.items()}, "update.pt")


def test_the_batch_behind_a_saved_gradient_is_scored(client):
    saved(client[1])
    report, pictures = run_audit(scenario(), triaged=True)
    (row,) = [r for r in report.summary if r.attack == "peeling"]
    assert row.success_rate.recovered == row.success_rate.records == 4
    assert (report.scenario.trials, report.scenario.batch_size) == (1, 4)
    torch.testing.assert_close(pictures.recovered["peeling | none | plain"], pictures.true, atol=1e-3, rtol=0)


def test_two_clients_in_one_file(client, mine):
    model, _ = client
    inputs, labels = mine["batch"]()
    both = [gradient(model, inputs[:2], labels[:2]), gradient(model, inputs[2:], labels[2:])]
    saved({n: torch.stack([g[n] for g in both]) for n in both[0]})
    setup = scored_setup(scenario(), None, "cpu")
    assert tuple(setup.batch.labels.shape) == (2, 2)


@pytest.mark.parametrize(
    ("scale", "local", "said"),
    [
        (-0.1, {}, "its opposite"),
        (4.0, {}, "4 times that"),
        (-0.1, {"kind": "fedavg", "lr": 0.2}, "say --local lr=0.1"),
    ],
    ids=["a difference taken for a gradient", "a sum", "another learning rate"],
)
def test_an_update_that_the_batch_does_not_give_is_refused(client, scale, local, said):
    saved(client[1], scale)
    with pytest.raises(BadInput, match=said):
        scored_setup(scenario(local=Client(**local)), None, "cpu")


def test_another_batch_is_refused_even_if_it_resembles_the_right_one(client, mine):
    inputs, labels = mine["batch"]()
    saved(gradient(client[0], (inputs + 0.3 * torch.rand_like(inputs)) / 1.3, labels))
    with pytest.raises(BadInput, match=r"cosine of 0\.9\d* to that"):
        scored_setup(scenario(), None, "cpu")


def shuffled(client, mine, lr=0.1):
    """The weight difference of two local steps, the mini-batches in another order than the batch has them."""
    model, _ = client
    inputs, labels = mine["batch"]()
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    for part in ([3, 0], [1, 2]):
        for p, g in zip(model.parameters(), gradient(model, inputs[part], labels[part]).values(), strict=True):
            p.data -= lr * g
    return {n: p.detach() - start[n] for n, p in model.named_parameters()}


def test_mini_batches_in_another_order_are_audited_with_a_flag(client, mine):
    saved(shuffled(client, mine, lr=1.0))
    local = Client(kind="fedavg", lr=1.0, epochs=1, batch_size=2)
    report, _ = run_audit(scenario(local=local, attacks=("random-guess", "labels")))
    assert "batch-only-alike" in {flag.id for flag in report.flags}
    with pytest.raises(BadInput, match="times as long"):
        scored_setup(scenario(local=dataclasses.replace(local, lr=0.1)), None, "cpu")


def test_the_right_batch_raises_no_doubt(client):
    saved(client[1])
    report, _ = run_audit(scenario())
    assert "batch-only-alike" not in {flag.id for flag in report.flags}


def test_a_frozen_parameter_is_named_and_what_to_do_about_it(client, mine):
    torch.save({**client[1], "1.bias": None}, "update.pt")
    with pytest.raises(BadInput, match=r"None for '1\.bias'; leave out parameters without a gradient"):
        scored_setup(scenario(), None, "cpu")
    with pytest.raises(BadInput, match=r"NoneType for '1\.bias'"):
        audit_update(client[0], {**client[1], "1.bias": None}, *mine["batch"]())


def test_a_floor_without_public_samples_is_not_called_a_failed_attack(client):
    saved(client[1])
    report, _ = run_audit(scenario())
    assert "mean-image" not in {row.attack for row in report.summary}
    assert [s.why for s in report.skipped if s.attack == "mean-image"] == [
        "not applicable: there are no public samples to take a mean of"
    ]


def test_a_weight_difference_with_the_right_rate_is_taken(client):
    saved(client[1], -0.1)
    setup = scored_setup(scenario(local=Client(kind="fedavg", lr=0.1)), None, "cpu")
    assert setup.victims.shared.kind == "weight_delta"


def test_other_weights_than_the_clients_are_noticed(client):
    saved(client[1])
    with pytest.raises(BadInput, match="check the batch, --weights"):
        scored_setup(scenario(weights=None, seed=5), None, "cpu")


def test_a_declared_defense_may_have_changed_it_and_who_knows_it_is_played(client):
    saved({n: t + torch.randn_like(t) for n, t in client[1].items()})
    report, _ = run_audit(scenario(defenses=("gaussian:std=1",), attacks=("inverting-gradients:steps=2",)))
    assert {(r.defense, r.adaptive) for r in report.summary if r.floor or r.adaptive} >= {("gaussian:std=1", True)}
    assert [c.defense for c in report.verdict.configurations] == ["gaussian:std=1"]
    assert "defense-without-effect" not in {f.id for f in report.flags}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": "digits"}, "--blind"),
        ({"threat_model": "malicious-architecture"}, "saved update"),
        ({"defenses": ("prune", "sign")}, "one chain"),
        ({"local": Client(seen=3)}, "one update was saved"),
    ],
)
def test_what_a_file_cannot_have_is_refused(client, changes, said):
    saved(client[1])
    with pytest.raises(BadInput, match=said):
        scored_setup(scenario(**changes), None, "cpu")


def test_samples_that_do_not_belong_to_the_clients_are_refused(client):
    saved({n: torch.stack([t, t, t]) for n, t in client[1].items()})
    with pytest.raises(BadInput, match="each of the 3 clients"):
        scored_setup(scenario(), None, "cpu")


def test_labels_beyond_the_models_outputs_are_refused(client):
    saved(client[1])
    np.savez("batch.npz", inputs=np.random.rand(2, 4, 6).astype(np.float32), labels=np.array([0, 7]))
    with pytest.raises(BadInput, match="model has 5 outputs"):
        scored_setup(scenario(data="batch.npz"), None, "cpu")


def test_public_samples_of_a_factory_that_splits_are_for_the_attacker_and_for_the_control(client):
    saved(client[1])
    setup = scored_setup(scenario(data="mine.py:halves"), None, "cpu")
    assert (setup.public.labels.shape, setup.others.labels.shape) == ((1, 5), (1, 4))


def test_a_decoys_update_is_computed_and_the_victims_is_the_saved_one(client):
    saved(client[1])
    setup = scored_setup(scenario(data="mine.py:halves"), None, "cpu")
    own = setup.update((), setup.model, setup.batch)
    torch.testing.assert_close(own.tensors["1.bias"][0], client[1]["1.bias"])
    other = setup.update((), setup.model, Batch(1 - setup.batch.inputs, setup.batch.labels))
    assert not torch.allclose(other.tensors["1.bias"], own.tensors["1.bias"])


def test_of_an_own_update_only_facts_of_the_run_are_told(client, mine):
    """Own arrays lend no public samples, so nobody was told any; and the model is not called untrained."""
    saved(client[1])
    report, _ = run_audit(scenario())
    assert Fact.PUBLIC_DATA.value not in report.facts
    assert report.environment["model state"] == "weights from model.pt"
    lent, _ = run_audit(scenario(data="mine.py:halves"))
    assert Fact.PUBLIC_DATA.value in lent.facts
    looped, _ = audit_update(*client, *mine["batch"](), Scenario(attacks=("peeling",)))
    assert Fact.PUBLIC_DATA.value not in looped.facts
    assert looped.environment["model state"] == "as it was given"


def test_own_arrays_are_the_batch_unless_blind():
    assert holds_batch(scenario())
    assert holds_batch(scenario(data="a.npz"))
    assert not holds_batch(scenario(blind=True))
    assert not holds_batch(scenario(data="digits"))


def test_blind_there_is_only_what_an_attacker_sees(client):
    saved(client[1])
    setup = blind_setup(scenario(blind=True, batch_size=4), None, "cpu")
    assert setup.data.classes == 5
    assert not setup.scored
    seen = first_observation(setup)
    assert seen.fact(Fact.NUM_SAMPLES) == 4
    assert not seen.knows(Fact.LABELS)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gate": "ssim=0.5"}, "gate must be used where the batch"),
        ({"ledger": True}, "ledger must be used where the batch"),
        ({"threat_model": "honest-but-curious+labels"}, "without these facts"),
        ({"threat_model": "malicious-parameters"}, "tampering servers are run against simulated clients"),
    ],
)
def test_what_needs_the_truth_or_the_client_is_refused_blind(client, changes, said):
    saved(client[1])
    with pytest.raises(BadInput, match=said):
        blind_setup(scenario(blind=True, **changes), None, "cpu")


def test_adam_that_claims_sgd_is_never_called_safe(client, mine):
    model, (inputs, labels) = client[0], mine["batch"]()
    local = Client(kind="fedavg", lr=1e-3, optimizer="adam", epochs=3)
    update = client_step(local)(model, Batch(inputs[None], labels[None]), [0])
    saved({n: t[0] for n, t in update.tensors.items()})
    claim = Client(kind="fedavg", lr=0.1, epochs=3)
    with pytest.raises(BadInput, match=r"it fits --local kind=fedavg,lr=0\.001,epochs=3,optimizer=adam"):
        run_audit(scenario(local=claim))
    report, _ = run_audit(scenario(local=claim, blind=True, batch_size=4))
    assert "the update is not what was claimed" in report.verdict.doubt
    assert headline(report.verdict).startswith("Cannot tell: the update is not what was claimed")
    assert "not-as-claimed" in {flag.id for flag in report.flags}
    assert from_json(to_json(report)).verdict == report.verdict
    assert "cannot be told whether records can be rebuilt" in to_officer(report)
    honest, _ = run_audit(scenario(local=local, blind=True, batch_size=4))
    assert honest.verdict.doubt == ""


def test_another_number_of_samples_is_another_blind_audit(client):
    """Nothing finished is taken over from an audit that assumed another batch size."""
    saved(client[1])
    one, other = (blind_setup(scenario(blind=True, batch_size=n), None, "cpu").key for n in (4, 5))
    assert one != other


# --- from a training loop ---------------------------------------------------------------------------


def test_a_training_loop_hands_in_what_it_has(client, mine):
    model, update = client
    model.train()
    report, pictures = audit_update(model, update, *mine["batch"](), Scenario(attacks=("peeling",)))
    assert report.verdict.leaks
    assert report.verdict.configurations[0].lower.certified == 4
    assert tuple(pictures.true.shape) == (1, 4, 1, 4, 6)
    assert model.training, "the loop's own model is left alone"


def test_a_loop_with_the_wrong_claim_is_told(client, mine):
    model, update = client
    wrong = dataclasses.replace(Scenario(attacks=("peeling",)), local=Client(kind="fedavg", lr=0.1))
    with pytest.raises(BadInput, match="opposite"):
        audit_update(model, update, *mine["batch"](), wrong)
    with pytest.raises(BadInput, match="zeros only"):
        audit_update(model, {n: 0 * t for n, t in update.items()}, *mine["batch"]())


# --- one place for every audit ------------------------------------------------------------------------

NETWORK = "mlp:hidden=16"


@pytest.fixture
def files(tmp_path):
    """Two clients' gradients in a file, and their samples in another."""
    victims = draw_victims(load("digits", "test"), trials=2, batch_size=3, seed=8)
    model = load_model(NETWORK, load("digits").spec, seed=0)
    torch.save(dict(client_step(Client())(model, victims, (0, 1)).tensors), tmp_path / "update.pt")
    (tmp_path / "own.py").write_text(
        "from leakgauge.data import draw_victims, load\n"
        "def batch():\n"
        "    b = draw_victims(load('digits', 'test'), trials=2, batch_size=3, seed=8)\n"
        "    return b.inputs.flatten(0, 1), b.labels.flatten()\n"
        "def net():\n"
        "    from leakgauge.models import load_model\n"
        f"    return load_model('{NETWORK}', load('digits').spec, seed=0)\n"
    )
    return tmp_path


def test_simulated_clients_have_samples_and_no_update_yet():
    setup = setup_for(Scenario(model=NETWORK, data="digits", trials=2), None, "cpu")
    assert setup.scored
    assert setup.victims.shared is None
    assert setup.victims.trials == 2


def test_a_saved_update_is_scored_where_its_batch_is_there_and_blind_where_it_is_not(files):
    own = {"update": str(files / "update.pt"), "model": f"{files / 'own.py'}:net"}
    scored = setup_for(Scenario(**own, data=f"{files / 'own.py'}:batch"), None, "cpu")
    assert (scored.scored, scored.victims.trials, scored.victims.samples) == (True, 2, 3)
    assert scored.victims.belonging is not None
    blind = setup_for(Scenario(**own | {"model": NETWORK}, data="digits", batch_size=3), None, "cpu")
    assert (blind.scored, blind.victims.trials, blind.victims.samples) == (False, 2, 3)
    assert blind.scenario.trials == 2
    for name, tensor in scored.victims.shared.tensors.items():
        assert torch.equal(blind.victims.shared.tensors[name], tensor)


def test_what_was_checked_elsewhere_is_not_replayed_again(files):
    own = {"update": str(files / "update.pt"), "model": f"{files / 'own.py'}:net"}
    setup = setup_for(Scenario(**own, data=f"{files / 'own.py'}:batch"), None, "cpu", checked=False)
    assert setup.victims.belonging is None
