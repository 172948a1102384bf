"""Local training against plain torch SGD."""

import copy

import pytest
import torch
import torch.nn.functional as F

from leakgauge.client.fedavg import fedavg, local_steps, mini_batches
from leakgauge.client.fedsgd import fedsgd
from leakgauge.types import Client


def plain_sgd(net, inputs, labels, local):
    """What any textbook client does, in the order the samples come."""
    worker = copy.deepcopy(net).eval()
    if local.batchnorm == "train":
        worker.train()
    optimiser = torch.optim.SGD(worker.parameters(), lr=local.lr)
    size = local.batch_size or len(inputs)
    for _ in range(local.epochs):
        for x, y in zip(inputs.split(size), labels.split(size), strict=True):
            optimiser.zero_grad()
            F.cross_entropy(worker(x), y).backward()
            optimiser.step()
    before = dict(net.named_parameters())
    buffers = {n: b for n, b in worker.state_dict().items() if n not in before}
    return {n: (p - before[n]).detach() for n, p in worker.named_parameters()}, buffers


def test_one_step_is_minus_the_rate_times_the_gradient(model, victims):
    net, batch = model(), victims(2, 3)
    delta = fedavg(Client(kind="fedavg", lr=0.3))(net, batch, (0, 1))
    gradient = fedsgd()(net, batch, (0, 1))
    assert delta.kind == "weight_delta"
    for name, tensor in delta.tensors.items():
        torch.testing.assert_close(tensor, -0.3 * gradient.tensors[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("epochs", "batch_size"), [(1, 2), (3, 0), (2, 2), (2, 5), (2, 1)])
def test_epochs_and_mini_batches_equal_plain_sgd(model, victims, epochs, batch_size):
    local = Client(kind="fedavg", epochs=epochs, batch_size=batch_size, lr=0.5)
    net, batch = model(), victims(2, 5)
    delta = fedavg(local)(net, batch, (0, 1))
    for t in range(2):
        slow, _ = plain_sgd(net, batch.inputs[t], batch.labels[t], local)
        for name, expected in slow.items():
            torch.testing.assert_close(delta.tensors[name][t], expected, rtol=1e-9, atol=1e-12)


def test_batchnorm_in_train_mode_equals_plain_sgd_and_shares_its_statistics(model, victims):
    local = Client(kind="fedavg", epochs=2, batch_size=2, lr=0.05, batchnorm="train")
    net, batch = model("resnet20:width=2"), victims(2, 4)
    before = {n: b.clone() for n, b in net.named_buffers()}
    shared = fedavg(local)(net, batch, (0, 1))
    for t in range(2):
        slow, buffers = plain_sgd(net, batch.inputs[t], batch.labels[t], local)
        for name, expected in slow.items():
            torch.testing.assert_close(shared.tensors[name][t], expected, rtol=1e-8, atol=1e-11)
        for name, expected in buffers.items():
            torch.testing.assert_close(shared.buffers[name][t], expected, rtol=1e-8, atol=1e-11)
    assert all(torch.equal(b, before[n]) for n, b in net.named_buffers())  # the server's model stays as it was


def test_batchnorm_modes_differ_and_eval_shares_no_buffers(model, victims):
    net, batch = model("resnet20:width=2"), victims(2, 4)
    trained = fedavg(Client(kind="fedavg", batchnorm="train"))(net, batch, (0, 1))
    evaluated = fedavg(Client(kind="fedavg", batchnorm="eval"))(net, batch, (0, 1))
    assert trained.buffers
    assert not evaluated.buffers
    assert any(not torch.allclose(trained.tensors[n], evaluated.tensors[n], rtol=0.1) for n in trained.tensors)


def test_train_mode_without_batchnorm_is_the_same_as_eval(model, victims):
    net, batch = model(), victims(2, 4)
    one, other = (
        fedavg(Client(kind="fedavg", batch_size=2, batchnorm=mode))(net, batch, (0, 1)) for mode in ("train", "eval")
    )
    assert all(torch.equal(one.tensors[n], other.tensors[n]) for n in one.tensors)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_frozen_parameters_are_not_shared(model, victims, mode):
    net = model("resnet20:width=2")
    net.fc.weight.requires_grad_(False)
    shared = fedavg(Client(kind="fedavg", batchnorm=mode))(net, victims(1, 2), (0,))
    assert set(shared.tensors) == {n for n, p in net.named_parameters() if p.requires_grad}


def test_mini_batches_visit_every_sample_once_an_epoch_and_the_last_may_be_smaller():
    slices = list(mini_batches(5, Client(kind="fedavg", epochs=2, batch_size=2)))
    assert [(s.start, s.stop) for s in slices] == [(0, 2), (2, 4), (4, 5)] * 2
    assert local_steps(5, Client(kind="fedavg", epochs=2, batch_size=2)) == 6
    assert local_steps(5, Client(kind="fedavg", epochs=3)) == 3


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_client_that_shuffles_draws_an_order_for_every_epoch(model, victims, mode):
    net, batch = model("resnet20:width=2"), victims(2, 4)
    local = Client(kind="fedavg", lr=0.05, epochs=2, batch_size=2, batchnorm=mode)
    given, mixed, again, other = (
        fedavg(local, shuffled)(net, batch, seeds).tensors
        for shuffled, seeds in ((False, (0, 1)), (True, (0, 1)), (True, (0, 1)), (True, (5, 6)))
    )
    assert all(torch.equal(mixed[n], again[n]) for n in mixed)
    assert not torch.allclose(mixed["fc.weight"], other["fc.weight"])
    assert not torch.allclose(mixed["fc.weight"], given["fc.weight"])
    alone = fedavg(local, True)(net, batch.take([1]), (1,)).tensors
    torch.testing.assert_close(alone["fc.weight"][0], mixed["fc.weight"][1], rtol=1e-5, atol=1e-7)
    whole = Client(kind="fedavg", lr=0.05, epochs=2)
    one, two = (fedavg(whole, shuffled)(net, batch, (0, 1)).tensors["fc.weight"] for shuffled in (False, True))
    torch.testing.assert_close(one, two)
