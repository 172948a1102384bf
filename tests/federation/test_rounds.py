"""Rounds of training against the slow way: every client's gradient, their mean, one step of torch's own rule."""

import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn

from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.sums import weighted_mean
from leakgauge.data import Dataset, load
from leakgauge.defenses.precode import Precode
from leakgauge.errors import BadInput
from leakgauge.federation.rounds import accuracy, train
from leakgauge.models import load_model
from leakgauge.types import Batch, DataSpec, Training

CLIENTS, EACH = 3, 4
TABLE = DataSpec("table", (1,), 3, "tabular")
QUICK = Training(rounds=2, clients=CLIENTS, batch_size=EACH)


@pytest.fixture(scope="module")
def public():
    return load("digits", "train")


@pytest.fixture
def few(public) -> Dataset:
    """Just as many samples as one round takes, so that each round sees them all."""
    return Dataset(public.spec, *public.take(range(CLIENTS * EACH)))


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def assert_same(ours: nn.Module, other: nn.Module) -> None:
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("optimizer", "rule"), [("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)])
def test_a_round_applies_the_mean_of_the_clients_gradients(model, few, optimizer, rule):
    ours = train(model(), few, dataclasses.replace(QUICK, optimizer=optimizer, lr=0.05), seed=0)
    slow = model()
    step = rule(slow.parameters(), lr=0.05)
    inputs, labels = few.take(torch.arange(CLIENTS * EACH).reshape(CLIENTS, EACH))
    batch = Batch(inputs.double(), labels)
    for _ in range(2):
        gradient = weighted_mean(fedsgd()(slow, batch, range(CLIENTS))).tensors
        for name, parameter in slow.named_parameters():
            parameter.grad = gradient[name][0]
        step.step()
    assert_same(ours, slow)


def test_the_given_model_stays_untouched_and_the_copy_is_in_eval_mode(model, few):
    given = model("resnet20:width=2").train()
    before = {n: v.clone() for n, v in given.state_dict().items()}
    trained = train(given, few, QUICK, seed=0)
    assert given.training
    assert all(torch.equal(v, before[n]) for n, v in given.state_dict().items())
    assert not any(m.training for m in trained.modules())
    assert all(p.grad is None for p in (*given.parameters(), *trained.parameters()))


def test_who_follows_sees_every_round_its_model_and_its_loss(model, few):
    met = []
    trained = train(
        model(), few, QUICK, seed=0, follow=lambda done, worker, loss: met.append((done, parameters(worker), loss))
    )
    inputs, labels = few.take(torch.arange(CLIENTS * EACH))
    begun = nn.functional.cross_entropy(model()(inputs.double()), labels)
    assert [done for done, _, _ in met] == [1, 2]
    assert not met[0][2].requires_grad
    torch.testing.assert_close(met[0][2], begun.detach())
    for name, value in parameters(trained).items():
        torch.testing.assert_close(met[-1][1][name], value)


def test_no_rounds_change_nothing(model, few):
    given = model()
    assert_same(train(given, few, Training(), seed=0), given)


def test_the_same_seed_gives_the_same_model_and_another_seed_another(model, public):
    runs = [train(model().float(), public, QUICK, seed) for seed in (1, 1, 2)]
    first, again, other = (parameters(m) for m in runs)
    assert all(torch.equal(p, again[n]) for n, p in first.items())
    assert not any(torch.equal(p, other[n]) for n, p in first.items())


def test_a_longer_training_begins_as_a_shorter_one_and_no_round_uses_a_sample_twice():
    def rounds_of(number: int) -> list[list[int]]:
        seen: list[list[int]] = []
        watched = nn.Sequential(nn.Linear(1, 2)).double()
        watched.register_forward_pre_hook(lambda _, given: seen.append(given[0][:, 0].tolist()))
        numbered = Dataset(TABLE, torch.arange(20.0)[:, None] / 20, torch.zeros(20, dtype=torch.long))
        train(watched, numbered, dataclasses.replace(QUICK, rounds=number), seed=0)
        return seen[:number]  # behind them comes a look at whether the logits are finite

    short, long = rounds_of(2), rounds_of(4)
    assert long[:2] == short
    assert all(len(set(one)) == len(one) == CLIENTS * EACH for one in long)
    assert len({tuple(one) for one in long}) == 4


def test_batchnorm_learns_its_running_statistics(model, few):
    given = model("resnet20:width=2")
    trained = train(given, few, QUICK, seed=0)
    layers = {n for n, m in given.named_modules() if isinstance(m, nn.BatchNorm2d)}
    before, after = given.state_dict(), trained.state_dict()
    assert layers
    for name in layers:
        assert int(after[f"{name}.num_batches_tracked"]) == 2
        assert not torch.equal(before[f"{name}.running_mean"], after[f"{name}.running_mean"])


def test_what_a_layer_adds_to_the_loss_is_learned_from(model, few):
    """The slow way again, with the divergence of PRECODE's bottleneck in every client's gradient."""
    training = dataclasses.replace(QUICK, rounds=1, optimizer="sgd", lr=0.05)
    net = Precode(width=4, beta=1.0).prepare(model())
    ours, slow = train(net, few, training, seed=0), copy.deepcopy(net)
    inputs, labels = few.take(torch.arange(CLIENTS * EACH).reshape(CLIENTS, EACH))
    gradient = weighted_mean(fedsgd()(slow, Batch(inputs.double(), labels), range(CLIENTS))).tensors
    for name, parameter in slow.named_parameters():
        parameter.data -= 0.05 * gradient[name][0]
    assert_same(ours, slow)
    silent = train(Precode(width=4, beta=0.0).prepare(model()), few, training, seed=0)
    moved = [n for n, p in ours.named_parameters() if not torch.allclose(p, silent.get_parameter(n))]
    assert "fc1.weight" in moved


def test_dropout_is_off_and_nothing_is_drawn_behind_the_callers_back(few):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout(0.9)).double()
    torch.manual_seed(5)
    first = train(net, few, QUICK, seed=0)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))
    assert_same(first, train(net, few, QUICK, seed=0))


def test_frozen_parameters_stay(model, few):
    given = model()
    given.fc1.weight.requires_grad_(False)
    trained = train(given, few, QUICK, seed=0)
    assert torch.equal(trained.fc1.weight, given.fc1.weight)
    assert not torch.equal(trained.fc2.weight, given.fc2.weight)


def test_bytes_are_read_as_pixels(model, public):
    grey = (public.inputs * 255).byte()
    both = [train(model(), Dataset(public.spec, x, public.labels), QUICK, seed=0) for x in (grey, grey.float() / 255)]
    assert_same(*both)


def test_digits_are_learned(public):
    held_back = load("digits", "test")
    model = load_model("mlp:hidden=32", public.spec, seed=0)
    trained = train(model, public, Training(rounds=40), seed=0)
    assert accuracy(model, held_back) < 0.3
    assert accuracy(trained, held_back) > 0.8


def test_accuracy_counts_every_sample_once_over_all_chunks():
    """A model that answers with its input: 300 of 600 right, in an uneven number of chunks."""
    labels = torch.arange(600) % 3
    answers = torch.where(torch.arange(600) < 300, labels, (labels + 1) % 3)
    model = nn.Linear(3, 3, bias=False)
    nn.init.eye_(model.weight)
    samples = Dataset(dataclasses.replace(TABLE, shape=(3,)), nn.functional.one_hot(answers, 3).float(), labels)
    assert accuracy(model, samples) == 0.5
    assert accuracy(model, samples, torch.arange(200, 400)) == 0.5
    assert accuracy(model, samples, torch.tensor([0, 299, 300])) == pytest.approx(2 / 3)


def test_too_few_samples_are_refused_with_what_to_do(model, few):
    with pytest.raises(BadInput, match=r"clients x batch_size must be at most 12.*got 4 x 4.*lower either"):
        train(model(), few, Training(rounds=1, clients=4, batch_size=4), seed=0)


@pytest.mark.parametrize("rounds", [1, 5])
def test_a_training_that_diverges_is_refused(model, few, rounds):
    with pytest.raises(BadInput, match="training: lr must be small enough"):
        train(model("mlp:hidden=6").float(), few, Training(rounds, CLIENTS, EACH, "sgd", lr=1e38), seed=0)


def test_how_torch_picks_its_algorithms_is_left_as_it_was(model, few):
    train(model(), few, QUICK, seed=0)
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(BadInput):
        train(model("mlp:hidden=6").float(), few, Training(5, CLIENTS, EACH, "sgd", lr=1e38), seed=0)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("spec", ["lenet-dlg", "resnet20", "vgg16-mkor:width=8,hidden=32"])
def test_on_a_gpu_too_a_seed_gives_one_model_near_the_cpus(spec):
    colour = load("photos32", "train")
    model, quick = load_model(spec, colour.spec, seed=0), Training(rounds=5, optimizer="sgd")
    runs = [train(m, colour, quick, seed=0) for m in (model.cuda(), model)]
    assert all(torch.equal(a, b) for a, b in zip(runs[0].parameters(), runs[1].parameters(), strict=True))
    slow = train(model.cpu(), colour, quick, seed=0)
    for ours, theirs in zip(runs[0].parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-2, atol=1e-3)
