"""The user's own local training is run, and its settings come by name."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from leakgauge.client.fedavg import fedavg
from leakgauge.data._samples import from_samples
from leakgauge.errors import BadInput
from leakgauge.models.adapting import Adapted, adapted
from leakgauge.types import Batch, Client

OWN = """
import torch
def fit(net, trainloader, epochs, learning_rate, device="cpu"):
    optimiser = torch.optim.SGD(net.parameters(), lr=learning_rate)
    for _ in range(epochs):
        for batch in trainloader:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(batch["img"].to(device)), batch["label"]).backward()
            optimiser.step()
def by_config(model, data, config):
    for x, y in data:
        (gradient, *_) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(x), y), [next(model.parameters())])
        with torch.no_grad():
            next(model.parameters()).sub_(config["lr"] * gradient)
    return model.state_dict()
def wider(model, data, config):
    return torch.nn.Linear(3, 3)
def raising(model, data):
    raise RuntimeError("no GPU")
def of_tokens(net, trainloader):
    for batch in trainloader:
        batch = {k: v.to("cpu") for k, v in batch.items()}
        assert batch["input_ids"].dtype == torch.int64, batch["input_ids"].dtype
        assert set(batch) == {"input_ids", "attention_mask", "labels"}
        loss = net(**batch).loss
        assert "labels" in batch
        loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
def asking(model, data, wandb):
    pass
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    return lambda name, **more: Client(kind="fedavg", lr=0.1, fit=f"{tmp_path}/mine.py:{name}", **more)


def test_a_training_of_plain_sgd_gives_what_the_declared_one_gives(model, victims, own):
    net, batch = model(), victims(2, 4)
    ours = fedavg(Client(kind="fedavg", lr=0.1, epochs=2, batch_size=2))(net, batch, (0, 1))
    theirs = fedavg(own("fit", epochs=2, batch_size=2))(net, batch, (0, 1))
    for name, expected in ours.tensors.items():
        torch.testing.assert_close(theirs.tensors[name], expected, rtol=1e-8, atol=1e-11)


def test_a_state_dictionary_may_be_returned(model, victims, own):
    net, batch = model(), victims(1, 2)
    first, *rest = fedavg(own("by_config"))(net, batch, (0,)).tensors.values()
    assert first.any()
    assert not any(t.any() for t in rest)


@pytest.mark.parametrize(("name", "said"), [("wider", "shape"), ("raising", "no GPU"), ("asking", "wandb")])
def test_what_cannot_be_used_is_refused_in_one_line(model, victims, own, name, said):
    with pytest.raises(BadInput, match=said) as refused:
        fedavg(own(name))(model(), victims(1, 2), (0,))
    assert "\n" not in str(refused.value)


class Tokens(torch.nn.Module):
    """Returns an object with its loss, as models of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask, labels=None):
        logits = self.head((self.table(input_ids) * attention_mask[..., None]).sum(1))
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return SimpleNamespace(logits=logits, loss=loss)


def test_a_training_gets_its_own_inputs_by_name_and_its_own_model(own):
    arrays = {"input_ids": np.array([[0, 1, 4, 2], [3, 1, 0, 0]]), "attention_mask": np.ones((2, 4), bool)}
    data = from_samples("texts", arrays, np.array([0, 1]))
    torch.manual_seed(0)
    net = adapted(Tokens(), data.spec)
    batch = Batch(data.inputs[None], data.labels[None])
    theirs = fedavg(own("of_tokens"))(net, batch, (0,))
    ours = fedavg(Client(kind="fedavg", lr=0.1))(net, batch, (0,))
    for name, expected in ours.tensors.items():
        torch.testing.assert_close(theirs.tensors[name], expected, rtol=1e-4, atol=1e-6)
    assert isinstance(net, Adapted)
