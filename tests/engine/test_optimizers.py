"""The clients' optimisers against torch.optim, one client after another."""

import copy

import pytest
import torch
import torch.nn.functional as F

from leakgauge.client.fedavg import fedavg
from leakgauge.engine.optimizers import local_plan, rate_of, torch_optimizer
from leakgauge.types import Batch, Client

RULES = [
    "optimizer=sgd",
    "momentum=0.9",
    "momentum=0.9,dampening=0.3",
    "momentum=0.9,nesterov=true",
    "momentum=0.5,weight_decay=0.01",
    "optimizer=adam,lr=0.01",
    "optimizer=adam,weight_decay=0.1,beta1=0.8,beta2=0.9,eps=1e-4",
    "optimizer=adamw,weight_decay=0.1",
    "optimizer=rmsprop,weight_decay=0.01",
    "optimizer=rmsprop,momentum=0.9,alpha=0.9",
    "optimizer=adagrad,weight_decay=0.01",
    "clip=0.05,momentum=0.9",
    "proximal=0.5,optimizer=adam",
]


def local_of(text: str) -> Client:
    return Client.from_text(f"kind=fedavg,epochs=3,batch_size=2,{text}")


def plain_loop(net, inputs, labels, local, orders=None):
    """What a script with torch.optim does."""
    worker = copy.deepcopy(net).eval()
    start = [p.detach().clone() for p in worker.parameters()]
    optimiser = torch_optimizer(local, list(worker.parameters()))
    for epoch in range(local.epochs):
        order = orders[epoch] if orders else torch.arange(len(inputs))
        for part in order.split(local.batch_size):
            optimiser.zero_grad()
            loss = F.cross_entropy(worker(inputs[part]), labels[part])
            loss = loss + local.proximal / 2 * sum(
                (p - s).square().sum() for p, s in zip(worker.parameters(), start, strict=True)
            )
            loss.backward()
            if local.clip:
                torch.nn.utils.clip_grad_norm_(worker.parameters(), local.clip)
            optimiser.step()
    before = dict(net.named_parameters())
    return {n: (p - before[n]).detach() for n, p in worker.named_parameters()}


@pytest.mark.parametrize("text", RULES)
def test_each_rule_is_torchs_own(model, victims, text):
    local, net, batch = local_of(text), model(), victims(2, 5)
    shared = fedavg(local)(net, batch, (0, 1)).tensors
    for t in range(2):
        for name, expected in plain_loop(net, batch.inputs[t], batch.labels[t], local).items():
            torch.testing.assert_close(shared[name][t], expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("text", RULES[::3])
def test_train_mode_of_batchnorm_takes_the_same_rule(model, victims, text):
    """The loop that also moves running statistics: on a network without any it gives what the fast way gives."""
    from leakgauge.client import fedavg as module

    local, net, batch = local_of(text), model(), victims(2, 5)
    fast = fedavg(local)(net, batch, (0, 1)).tensors
    slow = module._one_by_one(net, batch, local, ()).tensors
    for name, expected in slow.items():
        torch.testing.assert_close(fast[name], expected, rtol=1e-7, atol=1e-10)


def test_shuffled_epochs_are_drawn_from_the_trials_own_seed(model, victims):
    local, net, batch = local_of("order=shuffled,momentum=0.9"), model(), victims(2, 5)
    both = fedavg(local)(net, batch, (3, 4)).tensors
    alone = fedavg(local)(net, batch.take([1]), (4,)).tensors
    given = fedavg(local_of("momentum=0.9"))(net, batch, (3, 4)).tensors
    for name in both:
        torch.testing.assert_close(both[name][1:], alone[name])
        assert not torch.allclose(both[name], given[name])


def test_plan_counts_steps_parts_and_rates():
    plan = local_plan(7, Client(kind="fedavg", epochs=2, batch_size=2, accumulate=2, schedule="linear", lr=1.0))
    assert [len(step.parts) for step in plan] == [2, 2, 2, 2]
    assert [step.lr for step in plan] == [1.0, 0.75, 0.5, 0.25]
    dropped = local_plan(7, Client(kind="fedavg", batch_size=2, drop_last=True))
    assert [part.stop for step in dropped for part in step.parts] == [2, 4, 6]


def test_schedules_are_torchs():
    for schedule, made in {
        "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 6),
        "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
        "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5),
        "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, 6),
    }.items():
        local = Client(kind="fedavg", lr=0.3, schedule=schedule, decay_every=2, decay_by=0.5)
        optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
        scheduler = made(optimiser)
        for step in range(6):
            assert optimiser.param_groups[0]["lr"] == pytest.approx(rate_of(local, step, 6), abs=1e-12)
            optimiser.step()
            scheduler.step()


def test_accumulated_gradients_are_those_of_the_whole_batch(model, victims):
    net, batch = model(), victims(1, 4)
    parts = fedavg(Client(kind="fedavg", batch_size=2, accumulate=2))(net, batch, (0,)).tensors
    whole = fedavg(Client(kind="fedavg"))(net, batch, (0,)).tensors
    for name in whole:
        torch.testing.assert_close(parts[name], whole[name], rtol=1e-9, atol=1e-12)


def test_an_update_is_sent_in_the_numbers_that_are_said(model, victims):
    net, batch = model(), victims(1, 2)
    full = fedavg(Client(kind="fedavg"))(net, batch, (0,)).tensors
    half = fedavg(Client(kind="fedavg", shared_as="bfloat16"))(net, batch, (0,)).tensors
    for name in full:
        assert torch.equal(half[name], full[name].to(torch.bfloat16).to(full[name].dtype))


def test_control_variates_correct_each_step(model, victims, tmp_path):
    net, batch = model(), victims(1, 2)
    control = {n: torch.full_like(p, 0.01) for n, p in net.named_parameters()}
    torch.save(control, tmp_path / "control.pt")
    local = Client(kind="fedavg", epochs=1, lr=0.1)
    plain = fedavg(local)(net, batch, (0,)).tensors
    moved = fedavg(Client(kind="fedavg", lr=0.1, control=str(tmp_path / "control.pt")))(net, batch, (0,)).tensors
    for name in plain:
        torch.testing.assert_close(moved[name], plain[name] - 0.1 * 0.01, rtol=1e-6, atol=1e-9)


def test_a_batch_may_have_several_axes_of_targets():
    net = torch.nn.Linear(3, 2)
    batch = Batch(torch.rand(2, 4, 3), torch.rand(2, 4, 2))
    shared = fedavg(Client(kind="fedavg", loss="mse", batch_size=2, optimizer="adam"))(net, batch, (0, 1))
    assert shared.tensors["weight"].shape == (2, 2, 3)
