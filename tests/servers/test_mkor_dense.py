"""MKOR's dense layers: Eqs. 10-13 pair by pair, and paths beside one another for a client with dropout."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.servers.mkor import MKOR
from leakgauge.types import NLL_ON_LOGITS, Batch, Client, DataSpec, threat_model

TABLE = DataSpec("table", (7,), 3, "tabular")
SIGMA = 1e-3


def dense_model(hidden: int, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return (
        nn.Sequential(
            nn.Linear(7, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 3),
        )
        .double()
        .eval()
    )


def test_the_text_mode_is_equations_10_to_13():
    model = dense_model(9)
    server = MKOR(parameters="inconspicuous", dense="text", leak=SIGMA, secret=2)
    sent = server.prepare(model, TABLE)
    _, owners = server._layout(model, TABLE)
    old, new = model.state_dict(), sent.state_dict()
    down, seconds = owners.pairs[:, 1].tolist(), owners.pairs.tolist()
    for unit in range(9):  # Eqs. 10 and 11
        row, bias = new["0.weight"][unit], new["0.bias"][unit]
        if unit in down:
            first = seconds[down.index(unit)][0]
            alpha = bias / old["0.bias"][first]
            assert alpha < 0
            torch.testing.assert_close(row, alpha * old["0.weight"][first])
        else:
            assert torch.equal(row, old["0.weight"][unit])
            assert bias == old["0.bias"][unit]
    own = {"3": (seconds, owners.chain[0].tolist()), "6": ([[u] for u in owners.chain[0].tolist()], [0, 1, 2])}
    for name, (reads, writes) in own.items():  # Eqs. 12 and 13
        weights = (old[f"{name}.weight"], new[f"{name}.weight"])
        for out in range(weights[0].shape[0]):
            for unit in range(9):
                before, after = (float(w[out, unit]) for w in weights)
                owner = next((n for n, units in enumerate(reads) if unit in units), None)
                if owner is None:
                    assert after == before
                elif writes[owner] == out:
                    assert after == abs(before)
                else:
                    assert 0 < abs(after) < 6 * SIGMA
            before, after = (float(p[f"{name}.bias"][out]) for p in (old, new))
            assert after == (abs(before) if out in writes else before)


def gradient_of(model: nn.Module, batch: Batch, seed: int) -> dict[str, torch.Tensor]:
    """A client with its dropout on, as no client of this tool has it: NLL on logits, (1, ...) per tensor."""
    model.train()
    torch.manual_seed(seed)
    logits = model(batch.inputs[0])
    loss = -logits.gather(1, batch.labels[0][:, None]).mean()
    names, tensors = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, tensors)
    model.eval()
    return {name: g[None] for name, g in zip(names, found, strict=True)}


def classes_found(paths: int, seed: int) -> tuple[int, float]:
    """How many of three classes a client with dropout 0.5 gives away, and the largest error of what was found."""
    server, model = MKOR(paths=paths), dense_model(64, 0.5)
    batch = Batch(
        torch.rand(1, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)),
        torch.tensor([[0, 1, 2]]),
    )
    sent = server.prepare(model, TABLE)
    local = Client(loss=NLL_ON_LOGITS)
    update = dataclasses.replace(
        fedsgd(Client(loss=NLL_ON_LOGITS))(sent, batch, [0]), tensors=gradient_of(sent, batch, seed)
    )
    seen = observe(sent, update, threat_model("malicious-parameters"), facts_about(sent, batch, TABLE, local, None))
    error = (server(seen, [0]).inputs - batch.inputs).abs().amax(2)[0]
    return int((error < 1e-6).sum()), float(error[error < 1e-6].max()) if (error < 1e-6).any() else 0.0


def test_paths_beside_one_another_outlive_dropout():
    """One path outlives two layers of dropout 0.5 in a quarter of all cases, 20 of them nearly always."""
    single, many = (sum(classes_found(paths, seed)[0] for seed in range(12)) for paths in (1, 20))
    assert 2 <= single <= 18  # of 36, 9 expected
    assert many >= 35


@pytest.mark.parametrize("more", [{}, {"parameters": "inconspicuous"}, {"parameters": "inconspicuous", "secret": 4}])
def test_without_dropout_several_paths_give_the_same(more):
    data = dataclasses.replace(TABLE, classes=4)
    model = load_model("mlp:hidden=40,activation=relu", data, seed=1).double()
    batch = Batch(torch.rand(1, 3, 7, dtype=torch.float64), torch.tensor([[2, 0, 1]]))
    results = []
    for paths in (1, 3):
        server = MKOR(paths=paths, **more)
        sent = server.prepare(model, data)
        local = Client(loss=NLL_ON_LOGITS)
        facts = facts_about(sent, batch, data, local, None)
        update = fedsgd(Client(loss=NLL_ON_LOGITS))(sent, batch, [0])
        results.append(server(observe(sent, update, threat_model("malicious-parameters"), facts), [0]).inputs)
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(results[0][0, 2], batch.inputs[0, 0], rtol=1e-6, atol=1e-6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(NotApplicable, match="3 classes with 4 paths each take 12 units, and it has 9"):
        MKOR(paths=4).prepare(dense_model(9), TABLE)
    with pytest.raises(NotApplicable, match="two dense layers"):
        MKOR(paths=2).prepare(nn.Sequential(nn.Linear(7, 3)), TABLE)
    for field, value in (("dense", "wide"), ("paths", 0)):
        with pytest.raises(BadInput, match=field):
            MKOR(**{field: value})
