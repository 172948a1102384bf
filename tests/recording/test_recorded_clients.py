"""Clients of a recorded federation: who is audited together, with what, and which samples are behind whose update."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

from leakgauge.audit.run import run_audit
from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.recording.own_update import blind_setup, holds_batch, scored_setup, setup_for
from leakgauge.recording.recorded_clients import (
    NothingReadable,
    batch_of_each,
    clients_of,
    filled_in,
    groups_of,
    left_aside,
    lent_by,
    names_of,
    update_of,
)
from leakgauge.recording.recorded_folder import Origin, read_folder
from leakgauge.recording.recorder import Recorder
from leakgauge.recording.triage import first_observation
from leakgauge.types import Batch, Client, Fact, Scenario

DIGITS = load("digits", "test")
MODEL = "mlp:hidden=32"


def samples_of(client, number=2):
    return DIGITS.take(torch.arange(3 * client, 3 * client + number))


def record(folder, sizes, *, rounds=(1,), keep=False, kind="weight_delta", lr=0.1):
    """One update of each client in each round; the weights move between rounds."""
    recorder = Recorder(folder, keep_private=keep)
    model = load_model(MODEL, DIGITS.spec, seed=3)
    for number in rounds:
        start = {n: t.clone() for n, t in model.state_dict().items()}
        for client, size in enumerate(sizes):
            model.load_state_dict(start)
            inputs, labels = samples_of(client, size)
            told = {"samples": size, "client": f"client {client}", "round": number, "private": (inputs, labels)}
            model.zero_grad()
            if kind == "gradient":
                nn.functional.cross_entropy(model(inputs), labels).backward()
                recorder.gradient(model, **told)
                continue
            with recorder.weight_delta(model, lr=lr, **told):
                nn.functional.cross_entropy(model(inputs), labels).backward()
                torch.optim.SGD(model.parameters(), lr=lr).step()
    return folder


def scenario(folder, **changes):
    return Scenario(**{"model": MODEL, "data": "digits", "update": str(folder), "seed": 3, **changes})


def filled(asked):
    """With what the recorder was told of the clients that are audited."""
    return filled_in(asked, clients_of(Path(asked.update), asked))


def test_the_earliest_round_unless_another_is_asked_for(tmp_path):
    record(tmp_path, (2, 2), rounds=(4, 7))
    assert {c.origin.round for c in clients_of(tmp_path, scenario(tmp_path))} == {4}
    assert {c.origin.round for c in clients_of(tmp_path, scenario(tmp_path, round=7))} == {7}
    with pytest.raises(BadInput, match="one of those recorded: 4, 7, got 5"):
        clients_of(tmp_path, scenario(tmp_path, round=5))


def test_of_clients_that_differ_those_that_are_most_alike(tmp_path):
    record(tmp_path, (1, 2, 2, 3))
    assert names_of(clients_of(tmp_path, scenario(tmp_path))) == ("client 1", "client 2")
    assert names_of(clients_of(tmp_path, scenario(tmp_path, batch_size=3))) == ("client 3",)


def test_what_is_left_aside_is_said(tmp_path):
    record(tmp_path / "all", (2, 2))
    assert left_aside(scenario(tmp_path / "all"), tmp_path / "all") is None
    record(tmp_path / "some", (2, 2, 3), rounds=(1, 2))
    said = left_aside(scenario(tmp_path / "some"), tmp_path / "some")
    assert said == (
        "2 of 6 recorded updates are audited: those of round 1 that are alike, 2 samples each "
        "(the others: another --batch-size); rounds 1, 2 are there (--round)"
    )


def test_what_was_recorded_fills_the_scenario_in_once_and_for_all(tmp_path):
    record(tmp_path, (2, 2, 2), lr=0.25)
    known = filled(scenario(tmp_path))
    assert (known.trials, known.batch_size, known.round) == (3, 2, 1)
    assert (known.local.kind, known.local.lr) == ("fedavg", 0.25)
    assert known.weights is not None
    assert known.weights.endswith(".safetensors")
    assert filled(known) == known


def test_what_the_scenario_says_goes_first(tmp_path):
    record(tmp_path, (2, 2))
    local = Client(kind="fedavg", lr=0.5)
    assert filled(scenario(tmp_path, local=local)).local == local
    with pytest.raises(BadInput, match="fedavg: update-00000 is a weight_delta"):
        filled(scenario(tmp_path, local=Client(batchnorm="train")))


@pytest.mark.parametrize("kind", ["weight_delta", "gradient"])
def test_an_audit_of_clients_whose_samples_were_kept(tmp_path, kind):
    record(tmp_path, (2, 2), keep=True, kind=kind)
    asked = scenario(tmp_path, attacks=("peeling",))
    assert holds_batch(asked)
    assert not holds_batch(dataclasses.replace(asked, blind=True))
    report, pictures = run_audit(asked, device="cpu")
    assert report.scenario.trials == 2
    assert torch.equal(pictures.true, torch.stack([samples_of(0)[0], samples_of(1)[0]]))
    assert report.verdict.leaks
    assert {f.certified for f in report.findings if f.attack == "peeling"} == {2}


def test_kept_samples_of_another_kind_are_refused(tmp_path):
    record(tmp_path, (2, 2), keep=True)
    with pytest.raises(BadInput, match=r"data must be of the shape of the recorded samples, \(1, 8, 8\)"):
        scored_setup(scenario(tmp_path, data="photos32"), None, "cpu")


MINE = """
import torch
from leakgauge.data import load


def clients():
    take = torch.tensor([9, 10, 3, 4, 0, 1, 6, 7])  # of clients 3, 1, 0 and 2: in an order of their own
    return load("digits", "test").take(take)


def too_few():
    return load("digits", "test").take(torch.arange(3))
"""


def test_own_samples_in_any_order_find_their_update(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    record(tmp_path / "recorded", (2, 2, 2))
    setup = scored_setup(scenario("recorded", data="mine.py:clients"), None, "cpu")
    assert torch.equal(setup.batch.inputs, torch.stack([samples_of(c)[0] for c in range(3)]))
    with pytest.raises(BadInput, match="2 samples for each of the 3 clients, got 3 samples"):
        scored_setup(scenario("recorded", data="mine.py:too_few"), None, "cpu")


def test_noise_does_not_hide_whose_update_it_is(tmp_path):
    record(tmp_path, (2, 2, 2), kind="gradient")
    asked = filled(scenario(tmp_path))
    model = load_model(MODEL, DIGITS.spec, 3)
    noise = torch.Generator().manual_seed(0)
    noisy = update_of(clients_of(tmp_path, asked), model).map(
        lambda _, t: t + 0.05 * torch.randn(t.shape, generator=noise)
    )
    order = [2, 0, 1]
    batches = Batch(*(torch.stack(part) for part in zip(*(samples_of(c) for c in order), strict=True)))
    assert batch_of_each(model, noisy, batches, asked.local).tolist() == [order.index(c) for c in range(3)]


def test_without_samples_there_is_what_a_server_sees(tmp_path):
    record(tmp_path, (2, 2), lr=0.25)
    asked = scenario(tmp_path)
    assert not holds_batch(asked)
    setup = blind_setup(asked, None, "cpu")
    assert setup.victims.names == ("client 0", "client 1")
    seen = first_observation(setup, range(2))
    assert seen.trials == 2
    assert seen.fact(Fact.NUM_SAMPLES) == 2
    assert seen.fact(Fact.LOCAL_TRAINING).lr == 0.25


def test_nothing_that_a_client_holds_is_lent_to_the_attacker():
    public = load("digits", "train")
    private = Batch(public.inputs[None, :5], public.labels[None, :5])
    lent = lent_by(public, private, seed=0)
    assert lent is not None
    assert float(torch.cdist(lent.inputs.flatten(1), private.inputs[0].flatten(1)).min()) > 0
    few = dataclasses.replace(public, inputs=public.inputs[:5], labels=public.labels[:5])
    assert lent_by(few, private, seed=0) is None


def test_every_round_is_a_group_and_clients_that_differ_are_groups_of_their_own(tmp_path):
    record(tmp_path, (2, 2, 3), rounds=(1, 4))
    groups = groups_of(read_folder(tmp_path))
    assert [name for name, _ in groups] == ["round-00001-1", "round-00001-2", "round-00004-1", "round-00004-2"]
    assert [len(clients) for _, clients in groups] == [2, 1, 2, 1]
    assert {c.origin.round for c in groups[2][1]} == {4}


@pytest.mark.parametrize("keep", [False, True], ids=["blind", "scored"])
def test_of_chosen_clients_those_that_cannot_be_read_are_left_out_and_named(tmp_path, keep):
    record(tmp_path, (2, 2), keep=keep)
    model = load_model(MODEL, DIGITS.spec, seed=3)
    zeros = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    told = Origin(samples=2, lr=0.1, client="client 2", round=1)
    Recorder(tmp_path, keep_private=keep).add(
        "weight_delta", zeros, told, weights=model.state_dict(), private=samples_of(2) if keep else None
    )
    ((_, clients),) = groups_of(read_folder(tmp_path))
    setup = setup_for(scenario(tmp_path), None, "cpu", clients=clients)
    assert setup.scored == keep
    assert setup.victims.names == ("client 0", "client 1")
    ((name, why),) = setup.victims.unreadable
    assert name == "update-00002"
    assert "zeros only" in why
    with pytest.raises(NothingReadable, match="zeros only") as caught:
        setup_for(scenario(tmp_path), None, "cpu", clients=clients[2:])
    assert len(caught.value.unreadable) == 1
    with pytest.raises(BadInput, match="zeros only"):
        setup_for(scenario(tmp_path), None, "cpu")
