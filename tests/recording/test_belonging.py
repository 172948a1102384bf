"""An update is held against its batch: its own is taken, any other is refused or said to be open."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.client.chain import client_step, prepared
from leakgauge.client.summed import seen_step
from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.recording import redrawn
from leakgauge.recording.belonging import origin_of
from leakgauge.recording.own_update import setup_of
from leakgauge.setup.plan import parse_chain
from leakgauge.types import Batch, Client, Finding, Scenario

NETWORKS = ("lenet-dlg:init=default", "mlp:hidden=32,activation=relu,init=default", "vit:patch=4,embedding=16,heads=2")
EPOCHS = Client(kind="fedavg", lr=0.02, epochs=3, batch_size=4)


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def drawn(digits, size, seed=0):
    """A batch, and another one of the same labels."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(digits), generator=g)[:size]
    taken, other = set(rows.tolist()), []
    for label in digits.labels[rows].tolist():
        places = (digits.labels == label).nonzero()[:, 0].tolist()
        other.append(next(p for p in places if p not in taken))
        taken.add(other[-1])
    inputs, labels = digits.take(rows)
    return inputs, labels, digits.take(torch.tensor(other))[0]


def gradient(model, inputs, labels, defense="", local=None, seed=0):
    chain = parse_chain(defense) if defense else ()
    step = seen_step(client_step(local or Client()), *chain)
    shared = step(prepared(model, *chain), Batch(inputs[None], labels[None]), [seed])
    return {n: t[0] for n, t in shared.tensors.items()}


def belonging(model, update, inputs, labels, declared="", local=None):
    scenario = Scenario(local=local or Client(), defenses=(declared,) if declared else (), seed=77)
    return setup_of(model, update, inputs, labels, scenario, "cpu").victims.belonging


def accepted(*args, **more):
    try:
        return belonging(*args, **more).sure
    except BadInput:
        return False


# --- nothing is drawn -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("size", [1, 6])
def test_its_own_batch_is_taken_and_another_of_its_labels_is_not(digits, network, size, dtype):
    inputs, labels, others = drawn(digits, size, seed=size)
    model = load_model(network, digits.spec, 1)
    update = {n: t.to(dtype).float() for n, t in gradient(model, inputs, labels).items()}
    assert belonging(model, update, inputs, labels).sure
    with pytest.raises(BadInput, match="what the batch in --data gives"):
        belonging(model, update, others, labels)


def test_one_other_sample_among_many_is_another_batch(digits):
    inputs, labels, others = drawn(digits, 8)
    model = load_model(NETWORKS[0], digits.spec, 1)
    update = gradient(model, inputs, labels)
    inputs[3] = others[3]
    with pytest.raises(BadInput, match="more than rounding"):
        belonging(model, update, inputs, labels)


def with_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).eval()


def test_batchnorm_in_the_other_mode_is_named_as_the_cause(digits):
    inputs, labels, _ = drawn(digits, 6)
    model = with_norm()
    update = gradient(model, inputs, labels, local=Client(batchnorm="train"))
    with pytest.raises(BadInput, match="it fits --local batchnorm=train"):
        belonging(model, update, inputs, labels)
    assert belonging(model, update, inputs, labels, local=Client(batchnorm="train")).sure


def squared(logits, labels):
    return F.mse_loss(logits, F.one_hot(labels, logits.shape[1]).float())


@pytest.mark.parametrize(
    ("loss", "optimiser", "said"),
    [
        (F.cross_entropy, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), "momentum=0.9: say so"),
        (
            F.cross_entropy,
            lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=5e-4),
            "momentum=0.9,weight_decay=0.0005: say so",
        ),
        (F.cross_entropy, lambda p: torch.optim.SGD(p, 0.1, weight_decay=1e-2), "weight_decay=0.01: say so"),
        (F.cross_entropy, lambda p: torch.optim.Adam(p, 0.1), "optimizer=adam: say so"),
        (squared, lambda p: torch.optim.SGD(p, 0.1), "loss=mse and targets of 0 and 1 for each class in --data"),
        (nn.CrossEntropyLoss(label_smoothing=0.1), lambda p: torch.optim.SGD(p, 0.1), "label_smoothing=0.1: say so"),
    ],
    ids=["momentum", "momentum and decay", "decay", "adam", "squared", "smoothed"],
)
def test_the_claim_that_fits_is_named(digits, loss, optimiser, said):
    inputs, labels, _ = drawn(digits, 4)
    model = load_model(NETWORKS[1], digits.spec, 1)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    moving = optimiser(model.parameters())
    for _ in range(3):
        moving.zero_grad()
        loss(model(inputs), labels).backward()
        moving.step()
    update = {n: p.detach() - before[n] for n, p in model.named_parameters()}
    model.load_state_dict(before)
    with pytest.raises(BadInput, match=f"it fits --local kind=fedavg,lr=0.1,epochs=3,{said}"):
        belonging(model, update, inputs, labels, local=Client(kind="fedavg", lr=0.1, epochs=3))


def test_a_gradient_of_another_loss_is_named_too(digits):
    inputs, labels, _ = drawn(digits, 4)
    model = load_model(NETWORKS[1], digits.spec, 1)
    named = dict(model.named_parameters())
    update = dict(zip(named, torch.autograd.grad(squared(model(inputs), labels), list(named.values())), strict=True))
    with pytest.raises(BadInput, match="it fits --local loss=mse and targets of 0 and 1 for each class"):
        belonging(model, update, inputs, labels)


# --- optimisers that people ship ---------------------------------------------------------------------

ADAM = Client(kind="fedavg", lr=1e-3, optimizer="adam", epochs=5)
CLIENTS = (
    ADAM,
    Client(kind="fedavg", lr=1e-3, optimizer="adamw", weight_decay=0.01, epochs=3, batch_size=2),
    Client(kind="fedavg", lr=1e-3, optimizer="rmsprop", schedule="cosine", epochs=4),
    Client(kind="fedavg", lr=1e-2, optimizer="adagrad", clip=0.1, epochs=2),
    Client(kind="fedavg", lr=0.05, momentum=0.9, nesterov=True, proximal=0.5, epochs=3),
    Client(kind="fedavg", lr=0.05, momentum=0.9, batch_size=1, accumulate=2, epochs=2),
    Client(kind="fedavg", lr=1e-3, optimizer="adam", precision="bfloat16", shared_as="bfloat16", epochs=2),
    Client(kind="fedavg", lr=1e-3, optimizer="adam", shared_as="float16"),
)


@pytest.mark.parametrize("local", CLIENTS, ids=lambda local: f"{local.optimizer}-{local.epochs}-{local.shared_as}")
def test_every_declared_client_is_taken_and_another_batch_is_not(digits, local, monkeypatch):
    monkeypatch.setattr("leakgauge.recording.belonging._NAMING", 0.0)  # no claim fits another batch
    inputs, labels, others = drawn(digits, 4)
    model = load_model(NETWORKS[1], digits.spec, 1)
    update = gradient(model, inputs, labels, local=local)
    assert belonging(model, update, inputs, labels, local=local).sure
    assert not accepted(model, update, others, labels, local=local)


def test_a_control_variate_is_part_of_the_claim(digits, tmp_path):
    inputs, labels, _ = drawn(digits, 4)
    model = load_model(NETWORKS[1], digits.spec, 1)
    torch.save({n: 0.01 * torch.randn_like(p) for n, p in model.named_parameters()}, tmp_path / "control.pt")
    plain = Client(kind="fedavg", lr=0.1, epochs=2)
    corrected = dataclasses.replace(plain, control=str(tmp_path / "control.pt"))
    update = gradient(model, inputs, labels, local=corrected)
    assert belonging(model, update, inputs, labels, local=corrected).sure
    assert not accepted(model, update, inputs, labels, local=plain)


@pytest.mark.parametrize(
    ("claimed", "said"),
    [
        ({"optimizer": "sgd"}, "kind=fedavg,lr=0.001,epochs=5,optimizer=adam: say so"),
        ({"optimizer": "adagrad"}, "kind=fedavg,lr=0.001,epochs=5,optimizer=adam: say so"),
        ({"optimizer": "rmsprop"}, "kind=fedavg,lr=0.001,epochs=5,optimizer=adam: say so"),
        ({"weight_decay": 0.02}, "kind=fedavg,lr=0.001,epochs=5,optimizer=adam: say so"),
        ({"lr": 1.3e-3}, "kind=fedavg,lr=0.001,epochs=5,optimizer=adam: say so"),
        ({"epochs": 4}, "kind=fedavg,lr=0.001,epochs=5,optimizer=adam: say so"),
        ({"beta1": 0.8}, "kind=fedavg,lr=0.001,epochs=5,optimizer=adam: say so"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_adam_that_claims_something_else_is_refused_with_what_fits(digits, claimed, said):
    inputs, labels, _ = drawn(digits, 4)
    model = load_model(NETWORKS[1], digits.spec, 1)
    update = gradient(model, inputs, labels, local=ADAM)
    with pytest.raises(BadInput, match=said):
        belonging(model, update, inputs, labels, local=dataclasses.replace(ADAM, **claimed))


def test_a_small_decay_that_is_not_claimed_does_not_pass_for_coarse_arithmetic(digits):
    inputs, labels, _ = drawn(digits, 4)
    model = load_model(NETWORKS[1], digits.spec, 1)
    decayed = Client(kind="fedavg", lr=0.05, momentum=0.9, weight_decay=3e-4, epochs=3)
    update = gradient(model, inputs, labels, local=decayed)
    with pytest.raises(BadInput, match=r"momentum=0\.9,weight_decay=0\.0003: say so"):
        belonging(model, update, inputs, labels, local=dataclasses.replace(decayed, weight_decay=0.0))


OWN = """
import torch

def fit(model, loader, config):
    rule = torch.optim.NAdam(model.parameters(), lr=config["lr"])
    for _ in range(config["epochs"]):
        for x, y in loader:
            rule.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            rule.step()
"""


@pytest.mark.parametrize("order", ["given", "shuffled"])
def test_an_own_training_is_run_with_its_own_draws(digits, tmp_path, order):
    (tmp_path / "my.py").write_text(OWN)
    local = Client(kind="fedavg", lr=1e-3, epochs=2, batch_size=4, order=order, fit=f"{tmp_path / 'my.py'}:fit")
    inputs, labels, others = drawn(digits, 12)
    model = load_model(NETWORKS[1], digits.spec, 1)
    update = gradient(model, inputs, labels, local=local, seed=5)
    found = belonging(model, update, inputs, labels, local=local)
    assert found.sure
    assert found.flag == ("batch-only-alike" if order == "shuffled" else "")
    assert not accepted(model, update, others, labels, local=local)
    wrong = dataclasses.replace(local, lr=3e-3)
    assert not accepted(model, update, inputs, labels, local=wrong)


# --- something is drawn -----------------------------------------------------------------------------


def shuffled_epochs(model, inputs, labels, seed):
    g, worker = torch.Generator().manual_seed(seed), copy.deepcopy(model)
    optimiser = torch.optim.SGD(worker.parameters(), EPOCHS.lr)
    for _ in range(EPOCHS.epochs):
        for part in torch.randperm(len(labels), generator=g).split(EPOCHS.batch_size):
            optimiser.zero_grad()
            F.cross_entropy(worker(inputs[part]), labels[part]).backward()
            optimiser.step()
    before = dict(model.named_parameters())
    return {n: (p - before[n]).detach() for n, p in worker.named_parameters()}


@pytest.mark.parametrize("network", NETWORKS)
def test_shuffled_epochs_are_taken_with_a_flag_and_another_batch_is_not(digits, network):
    inputs, labels, others = drawn(digits, 14, seed=3)
    model = load_model(network, digits.spec, 1)
    update = shuffled_epochs(model, inputs, labels, seed=5)
    found = belonging(model, update, inputs, labels, local=EPOCHS)
    assert (found.sure, found.flag) == (True, "batch-only-alike")
    assert not accepted(model, update, others, labels, local=EPOCHS)


def test_a_slow_client_is_replayed_less_often(digits, monkeypatch):
    monkeypatch.setattr(redrawn, "_PATIENCE", 0.0)
    inputs, labels, others = drawn(digits, 14, seed=3)
    model = load_model(NETWORKS[1], digits.spec, 1)
    update = shuffled_epochs(model, inputs, labels, seed=5)
    assert belonging(model, update, inputs, labels, local=EPOCHS).flag
    assert not accepted(model, update, others, labels, local=EPOCHS)


@pytest.mark.parametrize(
    ("declared", "really"),
    [
        ("gaussian:std=0.001", "gaussian:std=0.003"),
        ("laplace:scale=0.001", "laplace:scale=0.0003"),
        ("dp-sgd:norm=1,sigma=0.001", "dp-sgd:norm=1,sigma=0.01"),
        ("random-mask:share=0.5", "random-mask:share=0.8"),
        ("quantize:bits=6,rounding=stochastic", "quantize:bits=4,rounding=stochastic"),
        ("prune:share=0.9", "prune:share=0.8"),
        ("dgc:share=0.9", "dgc:share=0.5"),
        ("clip:norm=0.1", "clip:norm=0.2"),
        ("sign", "sign:scale=none"),
    ],
)
def test_a_declared_defense_has_to_be_the_one_that_was_applied(digits, declared, really):
    inputs, labels, others = drawn(digits, 4, seed=2)
    model = load_model(NETWORKS[1], digits.spec, 1)
    as_declared = gradient(model, inputs, labels, declared)
    assert belonging(model, as_declared, inputs, labels, declared).sure
    assert not accepted(model, as_declared, others, labels, declared)
    for applied in ("", really):
        with pytest.raises(BadInput, match=r"update"):
            belonging(model, gradient(model, inputs, labels, applied), inputs, labels, declared)


def test_a_guarantee_is_not_given_to_an_update_without_its_noise(digits):
    inputs, labels, _ = drawn(digits, 4)
    model = load_model(NETWORKS[1], digits.spec, 1)
    with pytest.raises(BadInput, match="the declared defense was not applied"):
        belonging(model, gradient(model, inputs, labels), inputs, labels, "dp-sgd:norm=1,sigma=20,q=0.01,rounds=100")


def test_noise_that_hides_the_batch_leaves_it_open(digits):
    inputs, labels, others = drawn(digits, 1)
    model = load_model(NETWORKS[0], digits.spec, 1)
    update = gradient(model, inputs, labels, "gaussian:std=1")
    for batch in (inputs, others):
        found = belonging(model, update, batch, labels, "gaussian:std=1")
        assert (found.sure, found.flag) == (False, "batch-unproven")
        assert "what is drawn hides" in found.why


def test_dropout_is_drawn_too(digits):
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.drop, self.head = nn.Linear(64, 48), nn.Dropout(0.3), nn.Linear(48, 10)

        def forward(self, x):
            return self.head(self.drop(torch.tanh(self.first(x.flatten(1)))))

    torch.manual_seed(0)
    model, (inputs, labels, others) = Dropping(), drawn(digits, 8)
    loss = F.cross_entropy(model.train()(inputs), labels)
    update = dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters())), strict=True))
    found = belonging(model, update, inputs, labels)
    assert (found.sure, found.flag) == (True, "batch-only-alike")
    assert not accepted(model, update, others, labels)


# --- what attacks say of the batch ------------------------------------------------------------------


def test_a_solved_objective_with_other_records_speaks_against_the_batch(digits):
    inputs, labels, _ = drawn(digits, 1)
    model = load_model(NETWORKS[1], digits.spec, 1)
    setup = setup_of(model, gradient(model, inputs, labels), inputs, labels, Scenario(), "cpu")
    solved = Finding(
        attack="dlg",
        defense="none",
        adaptive=False,
        trial=0,
        seed=0,
        scores={},
        records=({"ssim": 0.1, "psnr": 5.0},),
        objective=1e-12,
        trace=(1.0, 1e-12),
        steps=50,
        evaluations=51,
        seconds=1.0,
    )
    assert origin_of(setup, [solved]).flag == "explained-by-others"
    assert origin_of(setup, [dataclasses.replace(solved, objective=0.5)]).sure
    assert origin_of(setup, [dataclasses.replace(solved, records=({"ssim": 0.9, "psnr": 30.0},))]).sure
