"""FIELD F1: whole batches behind a first Linear + ReLU layer, each sample with a certificate that is never wrong."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.attacks.peeling import Peeling
from leakgauge.client.chain import prepared
from leakgauge.data import draw_victims, load
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.dropout import Dropout
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.precode import Precode
from leakgauge.errors import NotApplicable
from leakgauge.matching.first_layer import SOLVED, PeeledLayer
from leakgauge.models import load_model
from leakgauge.types import Client, Known, SharedUpdate

WIDE = "mlp:hidden=300"


def certified(made, result):
    """For every trial the certified samples (K, d) and the true ones (N, d)."""
    found = []
    for t, missing in enumerate(result.objective.tolist()):
        claims, truth = result.inputs[t].flatten(1).double(), made.batch.inputs[t].flatten(1).double()
        found.append((claims[: round((1 - missing) * len(truth))], truth))
    return found


def distance_to_truth(made, result):
    """The largest error of any certified sample, and how many distinct true ones they are per trial."""
    worst, counts = 0.0, []
    for claims, truth in certified(made, result):
        apart = torch.cdist(claims, truth, p=float("inf"))
        worst = max(worst, float(apart.min(1).values.max()) if len(claims) else 0.0)
        counts.append(len(set(apart.argmin(1).tolist())) if len(claims) else 0)
        assert counts[-1] == len(claims), "one sample was certified twice"
    return worst, counts


@pytest.mark.parametrize("data", ["digits", "breast-cancer"])
def test_small_batches_are_recovered_whole_from_float32_updates(scene, data):
    made = scene(WIDE, data=data, trials=3, samples=6)
    result = Peeling()(made.seen, range(3))
    worst, counts = distance_to_truth(made, result)
    assert counts == [6, 6, 6]
    assert worst < 1e-3
    assert torch.equal(result.labels.sort(1).values, made.batch.labels.sort(1).values)
    assert result.notes[0].startswith("6 of 6 samples certified")


def test_photos_in_batches_of_sixteen():
    photos = load("photos32")
    net = load_model("mlp:hidden=400", photos.spec, 0)
    batch = draw_victims(photos, 1, 16, 0)
    loss = nn.functional.cross_entropy(net(batch.inputs[0]), batch.labels[0])
    names = [n for n, _ in net.named_parameters()]
    update = dict(zip(names, torch.autograd.grad(loss, list(net.parameters())), strict=True))
    from leakgauge.client.observe import facts_about, observe
    from leakgauge.types import threat_model

    seen = observe(
        net,
        SharedUpdate("gradient", {n: g[None] for n, g in update.items()}),
        threat_model("eavesdropper"),
        facts_about(net, batch, photos.spec, Client(), None),
    )
    result = Peeling()(seen, (0,))
    apart = torch.cdist(result.inputs[0].flatten(1), batch.inputs[0].flatten(1), p=float("inf"))
    assert float(result.objective[0]) == 0.0
    assert float(apart.min(1).values.max()) < 0.03
    assert len(set(apart.argmin(1).tolist())) == 16


def test_what_is_certified_is_the_whole_update_by_a_slow_sum_in_float64(scene):
    """Sample by sample, by torch's own backward pass: the certified ones add up to what was sent."""
    made = scene(WIDE, trials=2, samples=8, dtype=torch.float64)
    result = Peeling()(made.seen, range(2))
    for t in range(2):
        summed = {n: torch.zeros_like(p) for n, p in made.seen.model.named_parameters()}
        for x, y in zip(result.inputs[t], result.labels[t], strict=True):
            loss = nn.functional.cross_entropy(made.seen.model(x[None]), y[None]) / 8
            gradient = torch.autograd.grad(loss, list(made.seen.model.parameters()))
            for name, part in zip(summed, gradient, strict=True):
                summed[name] += part
        for name, tensor in made.seen.update.tensors.items():
            torch.testing.assert_close(summed[name], tensor[t], rtol=1e-6, atol=1e-9)


def test_finds_at_least_whoever_has_a_row_alone(scene):
    made = scene("mlp:hidden=100", trials=4, samples=12, dtype=torch.float64)
    result = Peeling()(made.seen, range(4))
    first = made.seen.model.fc1
    for t, (claims, truth) in enumerate(certified(made, result)):
        active = first(made.batch.inputs[t].flatten(1)) > 0  # (N, H)
        alone = active & (active.sum(0) == 1)
        for k in torch.nonzero(alone.any(1))[:, 0].tolist():
            assert float((claims - truth[k]).abs().amax(1).min()) < 1e-6


@pytest.mark.parametrize(("hidden", "samples"), [(64, 24), (100, 32), (40, 60), (300, 48)])
def test_no_false_certificate_where_most_cannot_be_recovered(scene, hidden, samples):
    for seed in range(3):
        made = scene(f"mlp:hidden={hidden}", trials=4, samples=samples, seed=seed)
        worst, _ = distance_to_truth(made, Peeling()(made.seen, range(4)))
        assert worst < 0.03


def test_what_was_not_found_is_mid_grey_and_comes_last(scene):
    made = scene("mlp:hidden=40", trials=1, samples=60)
    result = Peeling()(made.seen, (0,))
    found = round((1 - float(result.objective[0])) * 60)
    assert found < 60
    assert (result.inputs[0, found:] == 0.5).all()


def test_noise_and_another_models_update_certify_nothing(scene):
    noisy = scene(WIDE, trials=2, samples=6, defenses=(Gaussian(std=1e-4),))
    assert (Peeling()(noisy.seen, range(2)).objective == 1).all()
    other = scene(WIDE, trials=1, samples=6, seed=1).seen
    here = scene(WIDE, trials=1, samples=6, seed=0, change=lambda _: other.update)
    assert (Peeling()(here.seen, (0,)).objective == 1).all()


def test_a_sample_that_is_there_twice_brings_no_false_one(scene):
    made = scene(WIDE, trials=1, samples=6, dtype=torch.float64)
    twice = torch.cat((made.batch.inputs[:, :5], made.batch.inputs[:, :1]), 1)
    labels = torch.cat((made.batch.labels[:, :5], made.batch.labels[:, :1]), 1)
    loss = nn.functional.cross_entropy(made.seen.model(twice[0]), labels[0])
    gradient = torch.autograd.grad(loss, list(made.seen.model.parameters()))
    update = dict(zip(made.seen.update.tensors, (g[None] for g in gradient), strict=True))
    result = Peeling()(
        scene(WIDE, trials=1, samples=6, dtype=torch.float64, change=lambda u: SharedUpdate(u.kind, update)).seen, (0,)
    )
    worst, counts = distance_to_truth(made, result)
    assert worst < 1e-6
    assert counts[0] <= 4


def test_normalisation_and_a_deeper_network_of_ones_own(scene):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Linear(64, 300), nn.Linear(300, 40), nn.Linear(40, 10)

        def forward(self, x):
            z = torch.relu(self.first((x.flatten(1) - 0.3) / 0.2))
            return self.third(torch.tanh(self.second(z)))

    torch.manual_seed(0)
    made = scene(Own(), trials=2, samples=5)
    worst, counts = distance_to_truth(made, Peeling()(made.seen, range(2)))
    assert worst < 1e-3
    assert min(counts) >= 4


def test_a_weight_difference_of_one_step_is_as_good_as_a_gradient(scene):
    made = scene(WIDE, trials=2, samples=5, local=Client(kind="fedavg", lr=0.1), dtype=torch.float64)
    worst, counts = distance_to_truth(made, Peeling()(made.seen, range(2)))
    assert counts == [5, 5]
    assert worst < 1e-5


@pytest.mark.parametrize(
    ("model", "local", "why"),
    [
        ("lenet-dlg", {}, "first layer with weights is nn.Linear"),
        ("mlp:hidden=30,activation=sigmoid", {}, "ReLU right behind"),
        ("mlp:hidden=30", {"kind": "fedavg", "epochs": 3}, "takes several"),
    ],
)
def test_refuses_what_it_cannot_prove(scene, model, local, why):
    made = scene(model, trials=1, samples=2, local=Client(**local))
    with pytest.raises(NotApplicable, match=why):
        Peeling()(made.seen, (0,))


def test_batchnorm_that_mixes_the_batch_and_a_missing_bias_are_refused(scene):
    mixing = nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.ReLU(), nn.BatchNorm1d(80), nn.Linear(80, 10))
    with pytest.raises(NotApplicable, match="BatchNorm"):
        Peeling()(scene(mixing, trials=1, samples=4, local=Client(batchnorm="train")).seen, (0,))
    bare = nn.Sequential(nn.Flatten(), nn.Linear(64, 80, bias=False), nn.ReLU(), nn.Linear(80, 10))
    with pytest.raises(NotApplicable, match="bias"):
        Peeling()(scene(bare, trials=1, samples=2).seen, (0,))


@pytest.mark.parametrize("defense", [Clip(norm=0.01), Dropout(p=0.3), Precode()], ids=lambda d: d.name)
def test_whoever_knows_that_the_network_behind_is_hidden_solves_for_it(scene, defense):
    plain = load_model(WIDE, load("digits").spec, 0)
    made = scene(prepared(plain, defense), trials=2, samples=6, defenses=(defense,))
    assert defense.ways(Peeling()) == ("",)
    assert defense.informs(Peeling().problem(made.seen, (0, 1)), made.seen, "").coefficients == SOLVED
    found = Peeling()(made.seen, range(2), known=(Known(defense),))
    worst, counts = distance_to_truth(made, found)
    assert worst < 1e-2
    assert min(counts) >= 4
    assert found.labels is None


def test_solving_certifies_nothing_false_either(scene):
    for samples in (16, 30):
        made = scene("mlp:hidden=100", trials=4, samples=samples)
        worst, _ = distance_to_truth(made, Peeling().solve(PeeledLayer(made.seen, SOLVED), range(4), lambda _: None))
        assert worst < 0.03


def photos_in(shared, samples, hidden=400):
    """A photograph batch and its update, as a client shares it that rounds to this type."""
    from leakgauge.client.fedsgd import fedsgd
    from leakgauge.client.observe import facts_about, observe
    from leakgauge.types import threat_model

    photos = load("photos32")
    net = load_model(f"mlp:hidden={hidden},activation=relu", photos.spec, 0)
    batch = draw_victims(photos, 1, samples, 0)
    update = fedsgd()(net, batch, (0,)).map(lambda _, t: t.to(shared).to(t.dtype))
    facts = facts_about(net, batch, photos.spec, Client(), None)
    return batch, observe(net, update, threat_model("honest-but-curious"), facts)


@pytest.mark.parametrize(
    ("shared", "samples", "proven", "claimed", "least"),
    [
        (torch.bfloat16, 4, 4, 4, 50),
        (torch.float16, 8, 8, 8, 80),
        (torch.bfloat16, 16, 0, 12, 40),
        (torch.float16, 64, 0, 6, 45),
    ],
)
def test_updates_of_sixteen_bits_are_read_and_only_what_is_proven_is_certified(shared, samples, proven, claimed, least):
    batch, seen = photos_in(shared, samples)
    result = Peeling()(seen, (0,))
    assert result.certified.item() == proven
    assert result.claimed.sum().item() >= claimed
    found, truth = result.inputs[0][result.claimed[0]].flatten(1), batch.inputs[0].flatten(1)
    errors = torch.cdist(found, truth).square() / truth.shape[1]
    assert (-10 * errors.min(1).values.log10() > least).all()
    nearest = errors.argmin(1)
    assert len(set(nearest.tolist())) == len(found)
    assert torch.equal(result.labels[0][result.claimed[0]], batch.labels[0][nearest])
    assert (result.labels[0][~result.claimed[0]] == -1).all()


def test_coarse_noise_alone_is_neither_certified_nor_claimed():
    _, seen = photos_in(torch.float32, 8)
    g = torch.Generator().manual_seed(0)
    noise = seen.update.map(lambda _, t: torch.randn(t.shape, generator=g).bfloat16().float())
    result = Peeling()(dataclasses.replace(seen, update=noise), (0,))
    assert result.certified.item() == 0
    assert not result.claimed.any()
