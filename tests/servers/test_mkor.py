"""MKOR against its golden test G7: bounds hold, features are exact, and what real cross-entropy changes."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import NotApplicable
from leakgauge.models import load_model
from leakgauge.servers._first_layer import expected_alone
from leakgauge.servers._mkor.blueprint import blueprint
from leakgauge.servers._mkor.convolutions import narrowed, plan_copies
from leakgauge.servers._mkor.regions import bounds, pictures
from leakgauge.servers.mkor import MKOR
from leakgauge.types import (
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    Batch,
    Client,
    DataSpec,
    Fact,
    Observation,
    Reconstruction,
    threat_model,
)

GREY = DataSpec("grey", (1, 64, 64), 5, "image")
COLOUR = DataSpec("colour", (3, 32, 32), 6, "image", (0.5, 0.4, 0.3), (0.2, 0.25, 0.3))
DIGIT = DataSpec("digit", (1, 28, 28), 4, "image")
TABLE = DataSpec("table", (7,), 3, "tabular")
SMALL = {
    "vgg": ("vgg16-mkor:width=16,hidden=40", GREY),
    "lenet": ("lenet5-mkor", DIGIT),
    "modified": ("mkor-modified", COLOUR),
    "mlp": ("mlp:hidden=9,activation=relu", TABLE),
}


def model_of(name: str) -> tuple[nn.Module, DataSpec]:
    spec, data = SMALL[name]
    return load_model(spec, data, seed=1).double(), data


def samples(data: DataSpec, labels: list[list[int]]) -> Batch:
    g = torch.Generator().manual_seed(5)
    inputs = torch.rand(len(labels), len(labels[0]), *data.shape, generator=g, dtype=torch.float64)
    return Batch(inputs, torch.tensor(labels))


def seen(server: MKOR, model: nn.Module, data: DataSpec, batch: Batch, loss: str, public: bool = True) -> Observation:
    sent = server.prepare(model, data)
    local = Client(loss=loss)
    update = fedsgd(Client(loss=loss))(sent, batch, range(batch.trials))
    known = samples(data, [[0] * 40]) if public else None
    facts = facts_about(sent, batch, data, local, known)
    return observe(sent, update, threat_model("malicious-parameters"), facts)


def attacked(server: MKOR, name: str, labels: list[list[int]], loss: str) -> tuple[Batch, Reconstruction]:
    model, data = model_of(name)
    batch = samples(data, labels)
    return batch, server(seen(server, model, data, batch, loss), range(len(labels)))


def entering(model: nn.Module, layer: str, inputs: Tensor) -> Tensor:
    """What enters a dense layer, (N, d)."""
    caught: list[Tensor] = []
    hook = model.get_submodule(layer).register_forward_pre_hook(lambda _, args: caught.append(args[0].detach()))
    model(inputs)
    hook.remove()
    return caught[0]


@pytest.mark.parametrize("parameters", ["naive", "inconspicuous"])
def test_every_pixel_lies_between_its_bounds(parameters):
    model, data = model_of("vgg")
    server = MKOR(parameters=parameters, design="rows")
    copies, _ = server._layout(model, data)
    assert copies.geometry() == (32, 0, [4, 8, 16])
    inputs = samples(data, [[0] * 6]).inputs[0]
    inputs[0] = 0.3  # constant
    features = entering(server.prepare(model, data), "fc1", inputs).reshape(6, *copies.plan.features)
    lower, upper = bounds(features, copies)
    assert (lower <= inputs + 1e-7).all()
    assert (inputs <= upper + 1e-7).all()
    assert (upper - lower).mean() < 0.98
    torch.testing.assert_close(lower[0], inputs[0])
    torch.testing.assert_close(upper[0], inputs[0])
    torch.testing.assert_close(pictures(features, copies, 5)[0], inputs[0])


def test_bounds_are_the_extremes_of_all_regions_that_cover_a_pixel():
    """Against the definition: per direction and cell the maximum over its region, per pixel the least of them."""
    model, data = model_of("vgg")
    copies, _ = MKOR()._layout(model, data)
    inputs = samples(data, [[0]]).inputs[0]
    features = entering(MKOR().prepare(model, data), "fc1", inputs).reshape(1, *copies.plan.features)
    _, upper = bounds(features, copies)
    expected = torch.ones(64, 64, dtype=torch.float64)
    for down in range(0, 32, 4):
        for right in range(0, 32, 4):
            for top in range(down, 64, 32):
                for left in range(right, 64, 32):
                    region = (slice(top, min(top + 32, 64)), slice(left, min(left + 32, 64)))
                    highest = inputs[0, 0][region].max()
                    expected[region] = torch.minimum(expected[region], highest)
    torch.testing.assert_close(upper[0, 0], expected)


@pytest.mark.parametrize("name", ["vgg", "modified", "mlp"])
def test_nll_on_logits_gives_each_class_alone(name):
    """A class with one record: exactly what that record gives by itself; with two: their mean (plain copies)."""
    labels = [[2, 0, 1, 0], [1, 2, 2, 2]]
    batch, result = attacked(MKOR(blur=1), name, labels, NLL_ON_LOGITS)
    assert result.labels.tolist() == [[0, 0, 1, 2], [1, 2, 2, 2]]
    if name != "vgg":
        torch.testing.assert_close(result.inputs[0, 3], batch.inputs[0, 0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(result.inputs[0, 0], batch.inputs[0, [1, 3]].mean(0), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(result.inputs[1, 0], batch.inputs[1, 0], rtol=1e-6, atol=1e-6)
    assert "3 classes read, 2 of them with one record" in result.notes[0]


def test_features_of_a_convolutional_network_are_exact():
    model, data = model_of("vgg")
    batch = samples(data, [[3, 1, 4]])
    observation = seen(MKOR(), model, data, batch, NLL_ON_LOGITS)
    weight, bias = (observation.update.tensors[f"fc1.{part}"][0] for part in ("weight", "bias"))
    features = entering(observation.model, "fc1", batch.inputs[0])
    for row, label in zip(features, [3, 1, 4], strict=True):
        torch.testing.assert_close(weight[label] / bias[label], row, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["vgg", "modified", "mlp", "lenet"])
def test_an_absent_class_undoes_real_cross_entropy(name):
    labels = [[2, 0, 2], [1, 2, 0]] if name != "mlp" else [[2, 0, 2], [1, 0, 0]]
    _, by_nll = attacked(MKOR(), name, labels, NLL_ON_LOGITS)
    batch, by_entropy = attacked(MKOR(), name, labels, CROSS_ENTROPY)
    assert by_entropy.labels.tolist() == by_nll.labels.tolist() == batch.labels.sort(1).values.tolist()
    torch.testing.assert_close(by_entropy.inputs, by_nll.inputs, rtol=1e-5, atol=1e-5)


def test_with_every_class_present_the_bias_gradient_vanishes_and_a_guess_is_needed():
    labels = [[2, 0, 1]]
    model, data = model_of("mlp")
    batch = samples(data, labels)
    observation = seen(MKOR(), model, data, batch, CROSS_ENTROPY)
    assert observation.update.tensors["fc1.bias"].abs().max() < 1e-12
    errors = {}
    for name in ("grey", "public"):
        result = MKOR(mixture=name)(observation, [0])
        order = result.labels[0].argsort()[batch.labels[0]]
        errors[name] = (result.inputs[0, order] - batch.inputs[0]).abs().mean()
    # the guess is off by the batch's own mean, the same for all records: nothing but a shift is lost
    assert errors["grey"] < 0.3
    assert errors["public"] < 0.3
    released = MKOR(as_released=True)(observation, [0])
    assert (released.inputs == 0.5).all()  # no class passes the released rule


def test_lenet_holds_the_mean_of_four_by_four_pixels():
    model, data = model_of("lenet")
    batch = samples(data, [[1]])
    batch = Batch(torch.full_like(batch.inputs, 0.5), batch.labels)
    batch.inputs[0, 0, 0, 12:16, 12:16] = 0.9
    observation = seen(MKOR(), model, data, batch, NLL_ON_LOGITS)
    result = MKOR()(observation, [0])
    picture = result.inputs[0, 0, 0]
    assert picture[14, 14] == pytest.approx(0.9, abs=1e-6)  # its region is the bright square
    assert picture[8, 8] == pytest.approx(0.5, abs=1e-6)
    assert picture[18, 14] == pytest.approx(0.5, abs=1e-6)


def test_a_border_that_nothing_speaks_of_is_public_mean_black_or_copied():
    model, data = model_of("lenet")
    batch = samples(data, [[1]])
    known = seen(MKOR(), model, data, batch, NLL_ON_LOGITS)
    public = known.fact(Fact.PUBLIC_DATA).inputs[0].mean(0)
    torch.testing.assert_close(MKOR()(known, [0]).inputs[0, 0, :, :5], public[:, :5])
    assert (MKOR(as_released=True)(known, [0]).inputs[0, 0, 0, :5] == 0).all()
    copied = MKOR()(seen(MKOR(), model, data, batch, NLL_ON_LOGITS, public=False), [0]).inputs[0, 0, 0]
    torch.testing.assert_close(copied[0], copied[5])


@pytest.mark.parametrize("name", ["vgg", "mlp"])
def test_inconspicuous_parameters_give_the_same_up_to_dead_units(name):
    labels = [[2, 0, 1]]
    naive = attacked(MKOR(), name, labels, NLL_ON_LOGITS)[1]
    hidden = attacked(MKOR(parameters="inconspicuous", design="rows", link=1e4), name, labels, NLL_ON_LOGITS)[1]
    torch.testing.assert_close(hidden.inputs, naive.inputs, rtol=1e-5, atol=1e-5)


def test_inconspicuous_parameters_differ_by_secret_and_leave_the_rest_alone():
    model, data = model_of("vgg")
    one, other = (MKOR(parameters="inconspicuous", secret=s).prepare(model, data) for s in (0, 1))
    assert not torch.equal(one.get_parameter("conv1_1.weight"), other.get_parameter("conv1_1.weight"))
    changed = (one.get_parameter("fc1.weight") != model.get_parameter("fc1.weight")).any(1).sum()
    assert changed == data.classes  # one of each pair
    assert MKOR().prepare(model, data).get_parameter("conv5_3.weight").shape == (128, 128, 3, 3)


@pytest.mark.parametrize("where", ["modified", "all"])
def test_more_noise_on_the_parameters_costs_quality(where):
    model, data = model_of("vgg")
    batch = samples(data, [[0, 1, 2, 3]])
    batch.inputs[:] = 0.2
    errors = []
    for noise in (0.0, 1e-3, 1e-1):
        server = MKOR(noise=noise, noise_on=where)
        result = server(seen(server, model, data, batch, NLL_ON_LOGITS), [0])
        errors.append(float((result.inputs - batch.inputs).abs().mean()))
    assert errors[0] < 1e-6 < errors[1] < 0.05 < errors[2]


def test_the_narrow_network_has_the_same_features():
    model, data = model_of("vgg")
    copies, _ = MKOR()._layout(model, data)
    sent = MKOR().prepare(model, data)
    inputs = samples(data, [[0, 0]]).inputs[0]
    full = entering(sent, "fc1", inputs)[:, copies.used_features()]
    torch.testing.assert_close(entering(narrowed(sent, copies), "fc1", inputs), full)


def test_the_networks_own_normalisation_is_undone():
    model = load_model("mkor-modified:normalize=data", COLOUR, seed=0).double()
    batch = samples(COLOUR, [[4, 2]])
    result = MKOR()(seen(MKOR(), model, COLOUR, batch, NLL_ON_LOGITS), [0])
    torch.testing.assert_close(result.inputs[0, 1], batch.inputs[0, 0], rtol=1e-6, atol=1e-6)


def test_pictures_that_the_network_enlarges_come_back_at_their_own_size():
    model = load_model("vgg16-mkor:width=8,hidden=8,enlarge=64", COLOUR, seed=0).double()
    batch = samples(COLOUR, [[4, 2]])
    result = MKOR()(seen(MKOR(), model, COLOUR, batch, NLL_ON_LOGITS), [0])
    assert result.inputs.shape == batch.inputs.shape


def test_a_batch_of_one():
    for loss in (NLL_ON_LOGITS, CROSS_ENTROPY):
        batch, result = attacked(MKOR(), "modified", [[3]], loss)
        torch.testing.assert_close(result.inputs, batch.inputs, rtol=1e-6, atol=1e-6)


def test_expected_alone():
    assert expected_alone(100, 100) == pytest.approx(36.97, abs=0.01)
    assert expected_alone(1000, 1000) == pytest.approx(368.1, abs=0.1)


def _convnet(_: DataSpec) -> nn.Module:
    return load_model("convnet:width=2", COLOUR, 0)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (_convnet, r"'pool6'.*2x2"),
        (lambda d: load_model("resnet20:width=6", d, 0), r"shortcuts|BatchNorm2d|no bias"),
        (lambda d: nn.Sequential(nn.Conv2d(3, 6, 3, 3), nn.Flatten(), nn.Linear(600, 6)), r"'0'.*stride 1 or 2"),
        (lambda d: load_model("vgg16-mkor:width=4,hidden=8", d, 0), r"'conv1_1'.*6 channels.*has 4"),
        (lambda d: load_model("vgg16-mkor:width=8,hidden=5", d, 0), r"'fc1'.*6 units.*has 5"),
        (lambda d: load_model("lenet5-grnn", d, 0), r"'conv1'.*sigmoid"),
        (lambda d: nn.Sequential(nn.Flatten(), nn.Linear(3072, 6, bias=False)), r"'1' \(Linear\).*no bias"),
        (lambda d: nn.Sequential(nn.Conv2d(3, 6, 32), nn.Flatten()), r"dense layer"),
    ],
)
def test_what_it_cannot_prepare_is_named(build: Callable[[DataSpec], nn.Module], said):
    model = build(COLOUR)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(NotApplicable, match=said):
        MKOR().prepare(model, COLOUR)
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())


def test_inconspicuous_needs_two_dense_layers():
    model, data = model_of("modified")
    with pytest.raises(NotApplicable, match="two dense layers"):
        MKOR(parameters="inconspicuous").prepare(model, data)


def test_too_few_channels_for_directions_still_copies():
    model = load_model("vgg16-mkor:width=8,hidden=8", COLOUR, seed=0)
    copies = plan_copies(blueprint(model, COLOUR, "mkor"), "mkor", None)
    assert copies.fans.count(4) == 1


def test_a_louder_server_is_heard_through_noise():
    model, data = model_of("mlp")
    batch = samples(data, [[2, 0, 2]])
    errors = []
    for server in (MKOR(), MKOR().louder()):
        sent = server.prepare(model, data)
        update = Gaussian(std=0.1).wrap(fedsgd(Client(loss=NLL_ON_LOGITS)))(sent, batch, [0])
        facts = facts_about(sent, batch, data, Client(loss=NLL_ON_LOGITS), None)
        result = server(observe(sent, update, threat_model("malicious-parameters"), facts), [0])
        errors.append(float((result.inputs[0, 0] - batch.inputs[0, 1]).abs().mean()))
    assert errors[1] < 1e-2 < errors[0]
    assert Gaussian(std=0.1).ways(MKOR()) == ("",)
    assert Gaussian(std=0.1).informs_server(MKOR()) == MKOR(magnify=1e4) == MKOR().louder()
    assert Gaussian(std=0.1, relative=True).ways(MKOR()) == ()
