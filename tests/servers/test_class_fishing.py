"""Class fishing: one sample answers for a whole batch, exactly, and what comes back is its gradient."""

import copy

import pytest
import torch
from torch import nn

from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import load, public_batch
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.metrics.psnr import PSNR
from leakgauge.models import load_model
from leakgauge.servers._fished import answer_to
from leakgauge.servers.class_fishing import ClassFishing, exact_counts
from leakgauge.types import Batch, Client, Fact, threat_model

DATA = load("digits")
PUBLIC = public_batch(load("digits", "train"), 128, seed=0)
FEDSGD = Client()
RELU = "lenet-dlg:activation=relu,init=default"
SERVER = ClassFishing(steps=1)


def holding(labels, seed=0):
    """A client (1, N, ...) with these labels."""
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(DATA), generator=g).tolist()
    chosen = []
    for label in labels:
        chosen.append(next(i for i in order if int(DATA.labels[i]) == label and i not in chosen))
    return Batch(DATA.inputs[chosen][None], torch.tensor([labels]))


MIXED = holding([0, 0, 1, 1, 1, 4, 5, 5, 8, 8, 9, 9])  # only 4 occurs once
AT = 5  # its place


def look(model, batch, local=FEDSGD, knows="malicious-parameters"):
    update = client_step(local)(model, batch, [0] * batch.trials)
    return observe(model, update, threat_model(knows), facts_about(model, batch, DATA.spec, local, PUBLIC))


def meet(server, model, batch, local=FEDSGD):
    """The last of a server's looks at one client, and how many there were."""
    sent = server.prepare(model, DATA.spec, PUBLIC)
    for asked in range(1, 50):
        seen = look(sent, batch, local)
        following = server.ask_again(seen, asked)
        if following is None:
            return seen, asked
        sent = following
    raise AssertionError("never content")


def network(name, dtype=torch.float32):
    return load_model(name, DATA.spec, seed=0).to(dtype)


def last_layer(model):
    return SERVER.layer_of(model, DATA.spec)


def below_the_last_layer(model, batch, last="fc"):
    """Norm of each sample's own gradient, without the last layer: (N,)."""
    alone = Batch(batch.inputs[0][:, None], batch.labels[0][:, None])
    shared = client_step(FEDSGD)(model, alone, [0] * alone.trials).tensors
    return sum(t.flatten(1).pow(2).sum(1) for n, t in shared.items() if not n.startswith(f"{last}.")).sqrt()


@pytest.mark.parametrize("name", ["lenet-dlg", RELU, "lenet-dlg:activation=relu", "lenet-dlg:activation=tanh", "mlp"])
def test_exactly_one_sample_has_a_gradient(name):
    model = network(name)
    seen, asked = meet(SERVER, model, MIXED)
    norms = below_the_last_layer(seen.model, MIXED, last_layer(model))
    assert norms[AT] > 1e-3
    assert norms.nonzero().tolist() == [[AT]]
    assert asked in (2, 3)


@pytest.mark.parametrize("name", ["lenet-dlg", RELU])
def test_the_rescaled_answer_is_the_gradient_of_that_one_image(name):
    model = network(name, torch.float64)
    batch = Batch(MIXED.inputs.double(), MIXED.labels)
    seen, _ = meet(SERVER, model, batch)
    answer = answer_to(seen, "fc")
    alone = answer.alone(4, answer.weight[4], answer.bias, 1)
    own = client_step(FEDSGD)(seen.model, Batch(batch.inputs[:, [AT]], batch.labels[:, [AT]]), [0])
    for key, tensor in own.tensors.items():
        torch.testing.assert_close(alone.update.tensors[key], tensor, rtol=1e-6, atol=1e-6, msg=key)
        if not key.startswith("fc."):
            torch.testing.assert_close(12 * seen.update.tensors[key], tensor, rtol=1e-6, atol=1e-6, msg=key)
    assert alone.fact(Fact.NUM_SAMPLES) == 1
    assert alone.fact(Fact.LABELS).tolist() == [[4]]


def test_samples_that_share_the_rarest_class_answer_with_their_mean_gradient():
    batch = holding([0, 0, 0, 3, 3, 7, 7, 7, 7])
    seen, _ = meet(SERVER, network(RELU), batch)
    answer = answer_to(seen, "fc")
    assert answer.asked == 3
    pair = Batch(batch.inputs[:, 3:5], batch.labels[:, 3:5])
    alone = answer.alone(3, answer.weight[3], answer.bias, 2)
    for key, tensor in client_step(FEDSGD)(seen.model, pair, [0]).tensors.items():
        torch.testing.assert_close(alone.update.tensors[key], tensor, rtol=1e-4, atol=1e-6, msg=key)
    result = SERVER(seen, [0])
    assert "class 3 occurs 2 times" in result.notes[0]
    assert (result.inputs[0, 2:] == 0.5).all()
    assert (result.inputs[0, :2] != 0.5).any()


def test_row_over_bias_is_the_mean_feature_of_the_class():
    model = network(RELU)
    seen, _ = meet(ClassFishing(steps=1, target=1), model, MIXED)
    features = model[:-1](MIXED.inputs[0, 2:5]).mean(0)
    torch.testing.assert_close(answer_to(seen, "fc").mean_features(1)[0], features, rtol=1e-4, atol=1e-6)


def test_labels_are_counted_exactly_however_many_classes_are_absent():
    for labels in ([2] * 11 + [6], [0, 1, 2, 3, 5, 6, 7, 8, 9, 4, 9], [8, 8]):
        batch = holding(sorted(labels))
        seen, _ = meet(ClassFishing(steps=1, target=6), network("lenet-dlg"), batch)
        counts = exact_counts(answer_to(seen, "fc"), 6)
        assert torch.equal(counts[0], torch.bincount(batch.labels[0], minlength=10))


def test_a_wrong_first_count_is_corrected_by_the_exact_one():
    """The second query fished class 5, which occurs twice: its own update says that 4 is the one."""
    model = network(RELU)
    seen = look(ClassFishing(steps=1, target=5).prepare(model, DATA.spec, PUBLIC), MIXED)
    third = SERVER.ask_again(seen, 2)
    assert answer_to(look(third, MIXED), "fc").asked == 4
    assert SERVER.ask_again(look(third, MIXED), 3) is None


def test_the_fished_picture_stands_first_and_the_others_are_grey():
    seen, asked = meet(SERVER, network("lenet-dlg"), MIXED)
    result = ClassFishing(steps=150, tv=1e-6)(seen, [0])
    assert float(PSNR(MIXED.inputs[:, [AT]], result.inputs[:, :1].clamp(0, 1), DATA.spec)) > 20
    assert (result.inputs[0, 1:] == 0.5).all()
    assert result.labels[0, 0] == 4
    assert torch.equal(result.labels.sort(1).values, MIXED.labels)
    assert f"fished 1 of 12 samples, the only one of class 4, by {asked} queries" in result.notes[0]


def test_a_target_that_is_not_in_the_batch_is_said_so():
    seen, asked = meet(ClassFishing(steps=1, target=7), network(RELU), MIXED)
    result = ClassFishing(steps=1, target=7)(seen, [0])
    assert asked == 1
    assert (result.inputs == 0.5).all()
    assert result.notes == ("class 7 is not in the batch: nothing fished by 1 query",)
    assert torch.equal(result.labels, MIXED.labels)


def test_trials_with_and_without_the_class_go_together():
    both = Batch(
        torch.cat([MIXED.inputs, MIXED.inputs[:, [0] * 12]]), torch.cat([MIXED.labels, MIXED.labels[:, [0] * 12]])
    )
    server = ClassFishing(steps=2, target=4)
    result = server(look(server.prepare(network(RELU), DATA.spec, PUBLIC), both), [0, 1])
    assert (result.inputs[1] == 0.5).all()
    assert (result.inputs[0, 0] != 0.5).any()
    assert result.steps.tolist() == [2, 0]


def test_one_sample_needs_no_fishing():
    model, one = network("lenet-dlg"), holding([3])
    seen, asked = meet(SERVER, model, one)
    assert asked == 1
    plain = InvertingGradients(steps=3)(look(model, one, knows="honest-but-curious"), [0])
    assert torch.equal(ClassFishing(steps=3)(seen, [0]).inputs, plain.inputs)


def test_large_features_do_not_lift_the_class_over_the_other_biases():
    model = network(RELU)
    with torch.no_grad():
        model.conv3.weight.mul_(1e6)
    seen, _ = meet(SERVER, model, MIXED)
    assert answer_to(seen, "fc").bias.max() > 1000
    assert below_the_last_layer(seen.model, MIXED).nonzero().tolist() == [[AT]]


def test_a_weight_difference_of_one_step_gives_the_same_answer():
    local, model = Client(kind="fedavg", lr=0.1), network("lenet-dlg", torch.float64)
    batch = Batch(MIXED.inputs.double(), MIXED.labels)
    seen, _ = meet(SERVER, model, batch, local)
    answer = answer_to(seen, "fc")
    alone = answer.alone(4, answer.weight[4], answer.bias, 1)
    own = client_step(FEDSGD)(seen.model, Batch(batch.inputs[:, [AT]], batch.labels[:, [AT]]), [0])
    for key, tensor in own.tensors.items():
        torch.testing.assert_close(alone.update.tensors[key], tensor, rtol=1e-5, atol=1e-5, msg=key)
    assert torch.isfinite(SERVER(seen, [0]).inputs).all()


def test_the_given_model_stays_as_it_is():
    model = network(RELU)
    before = copy.deepcopy(model.state_dict())
    for server in (SERVER, ClassFishing(target=2)):
        meet(server, model, MIXED)
    assert all(torch.equal(model.state_dict()[k], t) for k, t in before.items())


def test_models_without_a_last_linear_layer_are_refused_by_name():
    convolutional = nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten())
    with pytest.raises(NotApplicable, match=r"ends in '0' \(Conv2d\)"):
        SERVER.prepare(convolutional, DATA.spec, None)
    unbiased = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10, bias=False))
    with pytest.raises(NotApplicable, match="biases, and '3' has none"):
        SERVER.prepare(unbiased, DATA.spec, None)
    frozen = network(RELU)
    frozen.fc.weight.requires_grad_(False)
    with pytest.raises(NotApplicable, match="'fc', which is frozen"):
        SERVER.prepare(frozen, DATA.spec, None)


def test_batch_statistics_are_refused_by_the_name_of_the_layer():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    with pytest.raises(NotApplicable, match="'1' mixes the samples"):
        meet(SERVER, model, MIXED, Client(batchnorm="train"))
    meet(SERVER, model, MIXED)


def test_a_target_beyond_the_classes_is_refused():
    with pytest.raises(BadInput, match="target must be -1 or a class below 10, got 10"):
        ClassFishing(target=10).prepare(network(RELU), DATA.spec, None)
