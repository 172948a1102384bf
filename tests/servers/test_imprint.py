"""The imprint module: bins with one sample give it away exactly, others are told apart, and nothing is mixed up."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.servers._first_layer import expected_alone
from leakgauge.servers.imprint import Imprint, public_quantiles, query_vector
from leakgauge.types import Batch, Client, DataSpec, Observation, Reconstruction, threat_model

IMAGES = DataSpec("noise", (3, 6, 6), 5, "image")
LINEAR = Imprint(bins=60, variant="linear")


@dataclass(frozen=True)
class Scene:
    batch: Batch
    seen: Observation
    result: Reconstruction

    def occupants(self) -> Tensor:
        """(T, N) how many samples share each sample's bin; 0 for those above the last edge or below the first."""
        module = self.seen.model.imprint
        place = torch.bucketize(self.batch.inputs.flatten(2) @ module.query, module.edges) - 1
        units = len(module.edges) - 1
        inside = (place >= 0) & (place < units)
        counts = torch.zeros(len(place), units + 2, dtype=torch.long)
        counts.scatter_add_(1, place + 1, torch.ones_like(place))
        return torch.where(inside, counts.gather(1, place + 1), 0)

    def error(self) -> Tensor:
        """(T, N) largest entry by which the nearest claim misses each sample."""
        return torch.cdist(self.batch.inputs.flatten(2), self.result.inputs.flatten(2), p=float("inf")).amin(2)


def scene(
    attack,
    model="mlp:hidden=16",
    *,
    data=IMAGES,
    trials=3,
    samples=12,
    dtype=torch.float64,
    local=None,
    seed=0,
    public=True,
) -> Scene:
    g = torch.Generator().manual_seed(seed)
    local = local or Client()
    net = load_model(model, data, seed).to(dtype) if isinstance(model, str) else model

    def draw(*shape):
        """Brightness differs, as in pictures: the statistic of plain noise would hardly vary."""
        bright = torch.rand(*shape, *[1] * len(data.shape), generator=g, dtype=torch.float64)
        return (bright * torch.rand(*shape, *data.shape, generator=g, dtype=torch.float64)).to(dtype)

    batch = Batch(draw(trials, samples), torch.randint(data.classes, (trials, samples), generator=g))
    known = Batch(draw(1, 512), torch.randint(data.classes, (1, 512), generator=g)) if public else None
    sent = attack.prepare(net, data, known)
    update = client_step(local)(sent, batch, range(trials))
    seen = observe(sent, update, threat_model("malicious-architecture"), facts_about(sent, batch, data, local, known))
    return Scene(batch, seen, attack(seen, range(trials)))


@pytest.mark.parametrize("loss", ["cross-entropy", "nll-on-logits"])
@pytest.mark.parametrize("query", ["randn", "fourier", "brightness"])
@pytest.mark.parametrize("variant", ["linear", "sparse"])
def test_every_sample_alone_in_its_bin_is_recovered(variant, query, loss):
    made = scene(Imprint(bins=60, variant=variant, query=query, mode=2), local=Client(loss=loss))
    alone = made.occupants() == 1
    assert alone.sum() > 10
    assert (made.occupants() > 1).any(), "the test shows nothing about shared bins"
    assert made.error()[alone].max() < 1e-8
    assert made.error()[~alone].min() > 1e-3


def test_in_float32_too():
    assert (errors := scene(Imprint(bins=60), dtype=torch.float32)).error()[errors.occupants() == 1].max() < 1e-6
    assert (errors := scene(LINEAR, dtype=torch.float32)).error()[errors.occupants() == 1].max() < 1e-3


def test_the_certificate_is_what_the_truth_says():
    for variant in ("linear", "sparse"):
        made = scene(Imprint(bins=40, variant=variant), samples=20)
        for trial, alone in enumerate((made.occupants() == 1).sum(1).tolist()):
            assert f": {alone} certified," in made.result.notes[trial]
            assert made.result.objective[trial] == pytest.approx(1 - alone / 20)
            found = (
                torch.cdist(made.result.inputs[trial].flatten(1), made.batch.inputs[trial].flatten(1)).amin(1) < 1e-6
            )
            assert found[:alone].all(), "the certified come first"


@pytest.mark.parametrize("variant", ["linear", "sparse"])
def test_the_top_bin_is_lost_as_released_and_not_by_default(variant):
    attack = Imprint(bins=8, variant=variant, query="brightness", quantiles="analytic")
    bright = torch.zeros(1, 3, *IMAGES.shape, dtype=torch.float64)
    bright[0, 0], bright[0, 1], bright[0, 2] = 0.1, 0.45, 0.99
    bright += 0.005 * torch.rand(bright.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    batch = Batch(bright, torch.tensor([[0, 1, 2]]))
    for as_released in (False, True):
        server = attack.with_fields(as_released=as_released)
        sent = server.prepare(load_model("mlp:hidden=16", IMAGES, 0).double(), IMAGES)
        assert bright[0, 2].flatten() @ sent.imprint.query > sent.imprint.edges[-2]
        update = client_step(Client())(sent, batch, [0])
        facts = facts_about(sent, batch, IMAGES, Client(), None)
        claims = server(observe(sent, update, threat_model("malicious-architecture"), facts), [0]).inputs[0]
        error = torch.cdist(bright[0].flatten(1), claims.flatten(1), p=float("inf")).amin(1)
        assert (error[:2] < 1e-8).all()
        assert (error[2] > 1e-3) == as_released


def test_one_shot_reads_the_one_bin_it_has():
    attack, found = Imprint(bins=12, variant="one-shot"), 0
    made = scene(attack, trials=20)
    module = made.seen.model.imprint
    assert module.sort.weight.shape[0] == 2
    place = torch.bucketize(made.batch.inputs.flatten(2) @ module.query, module.edges) - 1
    for trial in range(20):
        inside = place[trial] == 0
        if inside.sum() == 1:
            found += 1
            assert made.error()[trial][inside] < 1e-8
            assert "1 of 1 bins hit, samples alone in theirs: 1 certified" in made.result.notes[trial]
        assert (made.result.inputs[trial, 1:] == 0.5).all()
        if not inside.any():
            assert (made.result.inputs[trial] == 0.5).all()
    assert found > 3


def test_as_many_sit_alone_as_expected():
    assert expected_alone(64, 128) == pytest.approx(39.05, abs=0.01)
    assert expected_alone(5, 128) == pytest.approx(4.85, abs=0.01)
    made = scene(Imprint(bins=128), samples=64, trials=30)
    alone = (made.occupants() == 1).sum(1).double()
    assert alone.mean() == pytest.approx(expected_alone(64, 128), rel=0.08)
    assert "39.0 expected" in made.result.notes[0]


def test_public_quantiles_make_bins_equally_likely():
    g = torch.Generator().manual_seed(0)
    known, others = torch.randn(512, generator=g).double().exp(), torch.randn(20000, generator=g).double().exp()
    edges = public_quantiles(known, torch.arange(1, 100).double() / 100)
    assert (edges.diff() > 0).all()
    shares = torch.bincount(torch.bucketize(others, edges), minlength=100) / 20000
    steps = torch.bincount(torch.bucketize(others, known.quantile(torch.arange(1, 100).double() / 100)), minlength=100)
    assert shares.std() < 0.9 * (steps / 20000).std()


def test_public_samples_that_agree_leave_rising_thresholds():
    edges = public_quantiles(torch.full((32,), 0.25).double(), torch.tensor([0.1, 0.5, 0.9]).double())
    assert (edges.diff() > 0).all()


def test_queries_are_as_published():
    flat = DataSpec("flat", (8,), 2, "tabular", (0.0,), (1.0,))
    place = torch.arange(8).double() + 0.5
    expected = torch.cos(torch.pi / 8 * place * 3) / 8 * 3 * 4
    torch.testing.assert_close(query_vector("fourier", flat, 3, 0)[0], expected)
    torch.testing.assert_close(query_vector("fourier", flat, 0, 0)[0], torch.full((8,), 1.32 / 8).double())
    drawn = query_vector("randn", flat, 0, 5)[0]
    assert drawn.mean().abs() < 1e-12
    assert drawn.std() == pytest.approx(8**-0.5)
    assert not torch.equal(drawn, query_vector("randn", flat, 0, 6)[0])


@pytest.mark.parametrize("model", ["lenet-dlg:filters=2", "convnet:width=2", "mlp"])
def test_any_network_stands_behind_it_untouched(model):
    data = DataSpec("noise", (3, 16, 16), 5, "image")
    net = load_model(model, data, 1).double()
    before = copy.deepcopy(net.state_dict())
    made = scene(Imprint(bins=100), net, data=data, samples=6, trials=2)
    assert made.error()[made.occupants() == 1].max() < 1e-8
    assert made.seen.model.net is not net
    for key, tensor in before.items():
        assert torch.equal(net.state_dict()[key], tensor)
        assert torch.equal(made.seen.model.net.state_dict()[key], tensor)


def test_tables():
    victims, others = load("breast-cancer"), load("breast-cancer", "train")
    net = load_model("mlp", victims.spec, 0)
    batch, known = draw_victims(victims, 2, 8, 0), public_batch(others, 100, 0)
    sent = Imprint().prepare(net, victims.spec, known)
    update = client_step(Client())(sent, batch, [0, 1])
    facts = facts_about(sent, batch, victims.spec, Client(), known)
    result = Imprint()(observe(sent, update, threat_model("malicious-architecture"), facts), [0, 1])
    assert (torch.cdist(batch.inputs, result.inputs, p=float("inf")).amin(2) < 1e-6).sum() >= 14


def test_a_batch_of_one_is_recovered_with_its_label():
    made = scene(Imprint(), samples=1)
    assert made.error().max() < 1e-8
    assert torch.equal(made.result.labels, made.batch.labels)


@pytest.mark.parametrize("variant", ["linear", "sparse", "one-shot"])
def test_trials_together_equal_trials_alone(variant):
    made = scene(Imprint(bins=30, variant=variant), samples=20)
    for trial in range(3):
        alone = Imprint(bins=30, variant=variant)(made.seen.take([trial]), [trial])
        torch.testing.assert_close(alone.inputs[0], made.result.inputs[trial], rtol=0, atol=1e-10)
        assert alone.notes == made.result.notes[trial : trial + 1]


def test_the_first_row_as_released_is_everybody():
    made = scene(Imprint(bins=30, variant="linear", as_released=True), samples=8, trials=1)
    gradient = made.seen.update.tensors
    everybody = gradient["imprint.sort.weight"][0, 0] / gradient["imprint.sort.bias"][0, 0]
    claims = made.result.inputs[0].flatten(1)
    assert torch.cdist(everybody[None], claims).min() < 1e-8


def test_one_local_step_is_as_good_as_a_gradient_and_sparse_rows_survive_several():
    step = Client(kind="fedavg", lr=0.1)
    for variant in ("linear", "sparse"):
        made = scene(Imprint(bins=60, variant=variant), local=step)
        assert made.error()[made.occupants() == 1].max() < 1e-6
    made = scene(Imprint(bins=60), local=Client(kind="fedavg", batch_size=4, epochs=2, lr=0.01))
    assert (made.error()[made.occupants() == 1] < 1e-4).double().mean() > 0.9
    assert "not checked" in made.result.notes[0]
    assert "6 local steps read as one" in made.result.notes[0]


@pytest.mark.parametrize("keep", ["weight", "bias"])
def test_noise_in_every_bin_leaves_as_many_claims_as_samples(keep):
    made = scene(LINEAR)
    g = torch.Generator().manual_seed(0)
    noisy = made.seen.update.map(lambda _, t: t + 1e-3 * t.std() * torch.randn(t.shape, generator=g, dtype=t.dtype))
    seen = observe(made.seen.model, noisy, made.seen.threat_model, made.seen.revealed)
    result = Imprint(bins=60, variant="linear", keep=keep)(seen, range(3))
    assert result.inputs.shape == made.batch.inputs.shape
    assert torch.isfinite(result.inputs).all()
    assert "60 of 60 bins hit" in result.notes[0]


def test_batchnorm_by_batch_statistics_leaves_samples_recovered_but_unchecked():
    data = DataSpec("noise", (3, 16, 16), 5, "image")
    made = scene(Imprint(), "convnet:width=2", data=data, samples=6, local=Client(batchnorm="train"))
    assert (made.error()[made.occupants() == 1] < 1e-6).all()
    assert "not checked" in made.result.notes[0]


def test_too_many_bins_for_the_precision_are_refused():
    alike = Batch(torch.full((1, 64, *IMAGES.shape), 0.5), torch.zeros(1, 64, dtype=torch.long))
    with pytest.raises(BadInput, match="bins must be few enough"):
        Imprint(bins=2000, query="brightness").prepare(load_model("mlp", IMAGES, 0), IMAGES, alike)


def test_a_model_without_the_module_is_refused():
    made = scene(Imprint())
    plain = made.seen.model.net
    update = client_step(Client())(plain, made.batch, range(3))
    seen = observe(plain, update, made.seen.threat_model, made.seen.revealed)
    with pytest.raises(NotApplicable, match=r"Sequential has none.*malicious-architecture"):
        Imprint()(seen, range(3))


def test_a_frozen_module_is_refused_by_name():
    made = scene(Imprint())
    tensors = {n: t for n, t in made.seen.update.tensors.items() if n != "imprint.sort.bias"}
    model = copy.deepcopy(made.seen.model)
    model.imprint.sort.bias.requires_grad_(False)
    seen = observe(model, type(made.seen.update)("gradient", tensors), made.seen.threat_model, made.seen.revealed)
    with pytest.raises(NotApplicable, match=r"'imprint\.sort', which is frozen"):
        Imprint()(seen, range(3))


def test_a_network_that_does_not_end_in_a_linear_layer_keeps_its_labels():
    class Shuffled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(108, 5).double()

        def forward(self, x):
            return self.fc(x.flatten(1)).sin()

    made = scene(Imprint(), Shuffled())
    assert made.result.labels is None
    assert made.error()[made.occupants() == 1].max() < 1e-8
