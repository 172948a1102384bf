"""Adam for all clients at once is torch's Adam for each."""

import pytest
import torch
from torch.nn import functional

from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.lab.two_gaussians.cases import CASES, SPEC
from leakgauge.lab.two_gaussians.comparing import MODEL, trained
from leakgauge.lab.two_gaussians.training import PUBLISHED, AdamFederated, Local
from leakgauge.models import load_model
from leakgauge.types import Federation


def test_three_rounds_are_those_of_torch():
    data, clients = CASES["alike"].draw("train", 30, 0)
    local = Local.from_text(PUBLISHED)
    start = load_model(MODEL, SPEC, 0)
    federated = AdamFederated(start, data, clients, Federation(rounds=3, per_round=2), local.training, (), 0)
    workers = [load_model(MODEL, SPEC, 0) for _ in clients]
    optimizers = [torch.optim.Adam(worker.parameters(), lr=0.003) for worker in workers]
    for number in (1, 2, 3):
        before = federated.model
        chosen = federated.drawn(number)
        updates = federated._updates(chosen, number)
        for row, c in enumerate(chosen):
            workers[c].load_state_dict(before.state_dict())
            order = torch.randperm(30, generator=generator(0, f"order/{number}/0/{c}"))
            for some in order.split(8):
                indices = federated.trained_on[c][some]
                optimizers[c].zero_grad()
                functional.cross_entropy(workers[c](data.inputs[indices]), data.labels[indices]).backward()
                optimizers[c].step()
            for name, p in workers[c].named_parameters():
                moved = p.detach() - before.state_dict()[name]
                torch.testing.assert_close(updates.tensors[name][row], moved, rtol=1e-3, atol=2e-5)
        federated = AdamFederated(start, data, clients, Federation(rounds=3, per_round=2), local.training, (), 0)
        for again in range(1, number + 1):
            federated.run_round(again)


def test_centralised_is_one_client_with_all_samples_and_unpoisoned():
    pooled = trained("flipped", "centralised", 0, 1, 40)
    assert len(pooled.clients) == 1
    assert len(pooled.clients[0]) == 400
    assert pooled.poison is None


def test_bad_input_is_refused():
    with pytest.raises(BadInput, match="local: optimizer"):
        Local(optimizer="rmsprop")
    with pytest.raises(BadInput, match="local: lr"):
        Local(lr=0)
    data, clients = CASES["alike"].draw("train", 30, 0)
    some = AdamFederated(
        load_model(MODEL, SPEC, 0), data, clients, Federation(per_round=1), Local.from_text(PUBLISHED).training, (), 0
    )
    with pytest.raises(NotApplicable, match="all clients in every round"):
        some.run_round(1)
