"""Feature fishing: the cut lies where it should, and moving it leaves one sample of many."""

import copy
import math

import pytest
import torch
from torch import nn

from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import load, public_batch
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.metrics.psnr import PSNR
from leakgauge.models import load_model
from leakgauge.servers._fished import answer_to, asks_for, changed, silenced
from leakgauge.servers.feature_fishing import FeatureFishing, cut_of, equal_counts
from leakgauge.types import Batch, Client, Fact, threat_model

DATA = load("digits")
PUBLIC = public_batch(load("digits", "train"), 128, seed=0)
RELU = "lenet-dlg:activation=relu"
SERVER = FeatureFishing(steps=1)


def network(name, dtype=torch.float32):
    return load_model(name, DATA.spec, seed=0).to(dtype)


def of_class(label, count):
    everyone = torch.cat([DATA.inputs, load("digits", "train").inputs])
    labels = torch.cat([DATA.labels, load("digits", "train").labels])
    return Batch(everyone[labels == label][:count][None], torch.full((1, count), label))


def mixed(labels):
    chosen = [int(torch.nonzero(DATA.labels == label)[labels[:i].count(label)]) for i, label in enumerate(labels)]
    return Batch(DATA.inputs[chosen][None], torch.tensor([labels]))


def look(model, batch, public=PUBLIC):
    local = Client()
    update = client_step(local)(model, batch, [0] * batch.trials)
    facts = facts_about(model, batch, DATA.spec, local, public)
    return observe(model, update, threat_model("malicious-parameters"), facts)


def meet(server, model, batch, public=PUBLIC):
    sent = server.prepare(model, DATA.spec, public)
    for asked in range(1, 100):
        seen = look(sent, batch, public)
        following = server.ask_again(seen, asked)
        if following is None:
            return seen, asked
        sent = following
    raise AssertionError("never content")


def gradient_norms(model, batch, last="fc"):
    """Norm of each sample's own gradient below the last layer: (N,)."""
    alone = Batch(batch.inputs[0][:, None], batch.labels[0][:, None])
    shared = client_step(Client())(model, alone, [0] * alone.trials).tensors
    return sum(t.flatten(1).pow(2).sum(1) for n, t in shared.items() if not n.startswith(f"{last}.")).sqrt()


def sums(model, batch):
    """The sum of features of each sample: (N,)."""
    return model[:-1](batch.inputs[0]).sum(1).detach()


@pytest.mark.parametrize("name", ["lenet-dlg", RELU, "lenet-dlg:activation=tanh"])
def test_fifty_samples_of_a_class_are_told_apart_in_a_few_queries(name):
    model, batch = network(name), of_class(3, 50)
    seen, asked = meet(SERVER, model, batch)
    norms = gradient_norms(seen.model, batch)
    lowest = sums(model, batch).argmin()
    assert asked <= math.log2(50) + 6
    assert norms[lowest] > 1
    assert (norms > 1e-3 * norms[lowest]).sum() == 1
    assert f"fished 1 of 50 samples, among class 3, by {asked} queries" in SERVER(seen, [0]).notes[0]


def test_a_cut_that_float32_cannot_sharpen_says_what_share_is_not_the_samples_own():
    model, batch = network("lenet-dlg:init=default"), of_class(3, 50)  # sums of 24 that differ by 0.0001
    seen, _ = meet(SERVER, model, batch)
    norms = gradient_norms(seen.model, batch).sort(descending=True).values
    assert norms[1] > 0.01 * norms[0]
    assert "% of the answer from others" in SERVER(seen, [0]).notes[0]


@pytest.mark.parametrize("name", ["lenet-dlg", RELU, "mlp"])
def test_one_feature_will_do_as_well(name):
    server, batch = FeatureFishing(steps=1, along="feature"), of_class(3, 50)
    model = network(name)
    seen, asked = meet(server, model, batch)
    norms = gradient_norms(seen.model, batch, server.layer_of(model, DATA.spec)).sort(descending=True).values
    assert norms[1] < 1e-2 * norms[0]
    assert asked <= 20


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_row_over_bias_is_the_mean_feature_of_those_that_answer(share):
    """Far from every sample, so that each answers or is silent."""
    model, batch = network(RELU, torch.float64), of_class(3, 20)
    batch = Batch(batch.inputs.double(), batch.labels)
    values = sums(model, batch)
    rising = values.sort().values
    at = int(20 * share)
    sent = SERVER._cut(model, "fc", 3, 1e4 * torch.ones(model.fc.in_features), float(rising[at : at + 2].mean()), 1)
    answer = answer_to(look(sent, batch), "fc")
    below = values < rising[at : at + 2].mean()
    features = model[:-1](batch.inputs[0][below]).detach().mean(0)
    torch.testing.assert_close(answer.mean_features(3)[0], features, rtol=1e-6, atol=1e-6)
    assert cut_of(answer, 3).left == int(below.sum()) == at + 1


def test_the_rescaled_answer_is_the_gradient_of_that_one_image():
    model, batch = network(RELU, torch.float64), of_class(3, 30)
    batch = Batch(batch.inputs.double(), batch.labels)
    seen, _ = meet(FeatureFishing(steps=1, magnify=3000), model, batch)
    answer = answer_to(seen, "fc")
    row = torch.full_like(answer.weight[3], 0.5)
    weight = asks_for(answer.weight, 3, row)
    bias = silenced(weight, 3, model[:-1](batch.inputs[0]).detach(), 1000.0)
    alone = answer.alone(3, row, bias, 1)
    at = int(sums(model, batch).argmin())
    quiet = changed(model, "fc", weight, bias, 1)
    own = client_step(Client())(quiet, Batch(batch.inputs[:, [at]], batch.labels[:, [at]]), [0])
    for key, tensor in own.tensors.items():
        torch.testing.assert_close(alone.update.tensors[key], tensor, rtol=1e-6, atol=1e-6, msg=key)


class Passing(nn.Module):
    """One feature, the first pixel times ten, before the last layer."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(10.0))
        self.fc = nn.Linear(1, 10)

    def forward(self, x):
        return self.fc(self.gain * x.flatten(1)[:, :1])


def halfway(server, theta):
    """The feature at which a class's own probability is one half, found by bisection on the model that is sent."""
    sent = server._cut(Passing().double(), "fc", 2, 300.0 * torch.ones(1), theta, 1)
    low, high = torch.tensor(-10.0).double(), torch.tensor(10.0).double()
    for _ in range(80):
        middle = (low + high) / 2
        likely = torch.softmax(sent.fc(middle.view(1, 1)), 1)[0, 2] > 0.5
        low, high = torch.where(likely, low, middle), torch.where(likely, middle, high)
    return float(low)


@pytest.mark.parametrize("theta", [-1.5, 0.0, 2.25])
def test_the_released_biases_put_the_cut_over_three_above_its_place_and_ours_where_it_should_be(theta):
    lift = (1000 + math.log(9)) / 300
    assert lift == pytest.approx(3.34, abs=0.01)
    assert halfway(FeatureFishing(as_released=True), theta) == pytest.approx(theta + lift, abs=1e-6)
    assert halfway(FeatureFishing(), theta) == pytest.approx(theta, abs=1e-9)


def test_the_place_of_the_cut_is_read_off_the_model():
    batch = of_class(3, 4)
    for server, lift in ((SERVER, 0.0), (FeatureFishing(as_released=True), (1000 + math.log(9)) / 300)):
        sent = server._cut(network(RELU), "fc", 3, 300.0 * torch.ones(48), 7.0, 1)
        assert cut_of(answer_to(look(sent, batch), "fc"), 3).place == pytest.approx(7.0 + lift, abs=1e-4)


def test_features_that_differ_by_less_than_the_lift_are_not_told_apart_as_released():
    model, batch = network("lenet-dlg:init=default"), of_class(3, 20)  # sigmoid features, all within one
    server = FeatureFishing(steps=1, as_released=True)
    seen, _ = meet(server, model, batch)
    assert (gradient_norms(seen.model, batch) > 0).all()
    assert "20 of 20 samples, among class 3, still answer together" in server(seen, [0]).notes[0]


def test_a_mixed_batch_is_fished_through_a_class_that_it_lacks():
    model, batch = network(RELU), mixed([0, 0, 1, 1, 1, 2, 2, 5, 5, 5, 8, 8, 9])
    seen, _ = meet(SERVER, model, batch)
    norms, highest = gradient_norms(seen.model, batch), sums(model, batch).argmax()
    assert answer_to(seen, "fc").asked == 3
    assert norms[highest] > 1
    assert (norms > 1e-3 * norms[highest]).sum() == 1
    result = FeatureFishing(steps=150, tv=1e-6, restarts=2)(seen, [0])
    assert "all classes, with class 3 as bait" in result.notes[0]
    assert torch.equal(result.labels, batch.labels)
    psnr = PSNR(batch.inputs[:, [highest]], result.inputs[:, :1].clamp(0, 1), DATA.spec)
    grey = PSNR(batch.inputs[:, [highest]], result.inputs[:, 1:2], DATA.spec)
    assert (result.inputs[0, 1:] == 0.5).all()
    assert float(psnr) > float(grey) + 5


def test_other_classes_answer_above_the_published_cut_which_is_therefore_not_tried():
    batch = mixed([3, 3, 3, 5, 5, 5])
    model = network(RELU)
    server = FeatureFishing(steps=1, target=3)
    seen, asked = meet(server, model, batch)
    assert asked == 1
    assert "class 3 is not alone in the batch" in server(seen, [0]).notes[0]
    cut = float(sums(model, batch).min()) - 1  # below everyone: class 3 is silent, the others are not
    sent = server._cut(model, "fc", 3, 300.0 * torch.ones(model.fc.in_features), cut, 1)
    assert (gradient_norms(sent, batch) > 1).tolist() == [False] * 3 + [True] * 3


def test_batches_that_cannot_be_fished_say_why_and_come_back_grey():
    for server, batch, why in (
        (FeatureFishing(target=7), of_class(3, 5), "class 7 is not in the batch"),
        (SERVER, mixed([*range(10), *range(10)]), "every class is in the batch"),
    ):
        seen, asked = meet(server, network(RELU), batch)
        result = server(seen, [0])
        assert asked == 1
        assert why in result.notes[0]
        assert (result.inputs == 0.5).all()
        assert torch.equal(result.labels, batch.labels.sort(1).values)


def test_samples_that_do_not_differ_are_said_to_answer_together():
    batch = of_class(3, 6)
    twins = Batch(batch.inputs[:, [0, 0, 0]], batch.labels[:, :3])
    seen, asked = meet(SERVER, network(RELU), twins)
    assert asked < SERVER.queries
    assert "3 of 3 samples, among class 3, still answer together" in SERVER(seen, [0]).notes[0]


def test_a_layer_of_zeros_counts_labels_exactly():
    batch = mixed([0, 1, 1, 4, 4, 4, 9])
    answer = answer_to(look(SERVER.prepare(network("lenet-dlg"), DATA.spec, None), batch), "fc")
    assert equal_counts(answer)[0].tolist() == [1, 2, 0, 0, 3, 0, 0, 0, 0, 1]


def test_a_single_query_is_placed_by_public_samples():
    server = FeatureFishing(steps=1, queries=1, target=3, expected=20)
    model = network(RELU)
    seen, asked = meet(server, model, of_class(3, 20))
    own = sums(model, Batch(PUBLIC.inputs[:, PUBLIC.labels[0] == 3], PUBLIC.labels))
    place = own.mean() + torch.special.ndtri(torch.tensor(1 / 20)) * own.std()
    cut = cut_of(answer_to(seen, "fc"), 3)
    assert asked == 1
    assert cut.place == pytest.approx(float(place), rel=1e-4)
    assert cut.left == int((sums(model, of_class(3, 20)) < cut.place).sum())
    assert server(seen, [0]).labels is None


def test_a_single_query_needs_a_target_and_public_samples():
    with pytest.raises(BadInput, match="target must be a class where queries is 1"):
        FeatureFishing(queries=1)
    with pytest.raises(NotApplicable, match="public samples, and there are none"):
        FeatureFishing(queries=1, target=3).prepare(network(RELU), DATA.spec, None)


def test_works_without_public_samples():
    batch = of_class(3, 20)
    seen, _ = meet(SERVER, network("lenet-dlg"), batch, public=None)
    assert not seen.knows(Fact.PUBLIC_DATA)
    assert (gradient_norms(seen.model, batch) > 1).sum() == 1


def test_features_that_cannot_be_cut_are_refused_by_the_name_of_the_layer():
    tied = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 10))
    with torch.no_grad():
        tied[1].bias.fill_(-100.0)  # no unit is ever active
    with pytest.raises(NotApplicable, match="sum of features before '3' is the same"):
        meet(SERVER, tied, of_class(3, 5))
    with pytest.raises(NotApplicable, match="every feature before '3' is tied"):
        meet(FeatureFishing(along="feature"), tied, of_class(3, 5))
    with pytest.raises(BadInput, match="feature must be -1 or below 4, the features of '3'"):
        meet(FeatureFishing(along="feature", feature=4), tied, of_class(3, 5))


def test_a_feature_can_be_named():
    seen, _ = meet(FeatureFishing(along="feature", feature=5), network("lenet-dlg"), of_class(3, 5))
    assert answer_to(seen, "fc").weight[3].nonzero().tolist() == [[5]]


def test_queries_are_counted_and_bounded():
    batch = of_class(3, 50)
    server = FeatureFishing(steps=1, queries=3)
    seen, asked = meet(server, network(RELU), batch)
    assert asked == 3
    assert "still answer together after 3 queries" in server(seen, [0]).notes[0]


def test_the_given_model_stays_as_it_is_and_others_are_refused_by_name():
    model = network(RELU)
    before = copy.deepcopy(model.state_dict())
    meet(SERVER, model, of_class(3, 10))
    assert all(torch.equal(model.state_dict()[k], t) for k, t in before.items())
    with pytest.raises(NotApplicable, match=r"ends in '0' \(Conv2d\)"):
        SERVER.prepare(nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten()), DATA.spec, None)
