"""GGL: what the generator can draw is found, by slope and by evolution; the guessed defense is what makes it work."""

import pytest
import torch

from leakgauge.attacks._latent_search import norms
from leakgauge.attacks.ggl import GGL
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import observe
from leakgauge.defenses.prune import Prune
from leakgauge.errors import BadInput
from leakgauge.generators.architecture import Architecture, Decoder
from leakgauge.generators.generator import Generator
from leakgauge.generators.saving import Origin, save_generator
from leakgauge.types import Batch, threat_model

MODEL = "lenet-dlg:filters=4"


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> tuple[str, Generator]:
    """A file with a small generator of random weights, and what is in it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        net = Decoder(Architecture((1, 8, 8), 10, latent=4, width=8)).eval().requires_grad_(False)
    net.paint.weight.mul_(4)  # stronger contrast than the layer's own small start
    path = tmp_path_factory.mktemp("generator") / "small.safetensors"
    save_generator(path, net, Origin("digits", "train", 1, 1, 0, "0"), torch.zeros(1, dtype=torch.int64))
    return str(path), Generator(net, 4, (1, 8, 8), 10, "random")


@pytest.fixture
def in_range(scene, small):
    """Victims that the generator drew itself: (their pictures, what is seen of them)."""
    base = scene(MODEL, trials=2)
    z = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(3))
    batch = Batch(small[1].samples(z, base.batch.labels), base.batch.labels)
    update = fedsgd()(base.seen.model, batch, range(2))
    return batch, observe(base.seen.model, update, threat_model("honest-but-curious"), dict(base.seen.revealed))


@pytest.mark.parametrize(
    "how", [{"optimizer": "adam", "steps": 300}, {"optimizer": "cma-es", "steps": 80, "population": 16}], ids=str
)
def test_a_victim_from_the_generators_own_range_is_found(in_range, small, how):
    batch, seen = in_range
    result = GGL(generator=small[0], **how)(seen, (0, 1))
    assert (result.objective < 1e-3 * result.trace[:, 0]).all()
    assert (result.inputs - batch.inputs).abs().max() < 0.05
    assert torch.equal(result.labels, batch.labels)


def test_evolution_too_gives_a_trial_alone_what_it_gives_among_others(in_range, small):
    _, seen = in_range
    attack = GGL(generator=small[0], optimizer="cma-es", steps=4, population=6)
    together = attack(seen, (5, 6))
    alone = attack(seen.take([1]), (6,))
    torch.testing.assert_close(alone.inputs, together.inputs[[1]], rtol=1e-3, atol=1e-4)
    assert together.evaluations.tolist() == [2 * 4 * 6] * 2


def clip(update):
    """Every update shortened to a hundredth of its length, as a small clipping bound does."""
    bound = 0.01 * norms(update.tensors)
    return update.map(lambda _, t: t * (bound / norms(update.tensors)).view(-1, *[1] * (t.dim() - 1)))


@pytest.mark.parametrize(
    ("defended", "transform"),
    [({"defenses": (Prune(share=0.9),)}, "compress"), ({"change": clip}, "clip")],
    ids=["prune", "clip"],
)
def test_who_repeats_the_defense_recovers_more(scene, defended, transform):
    scenes = scene("lenet-dlg", trials=3, **defended)
    plain, named, auto = (
        scenes.psnr(GGL(steps=120, restarts=1, transform=t)(scenes.seen, (0, 1, 2)))
        for t in ("none", transform, "auto")
    )
    assert named.mean() > plain.mean() + 3
    torch.testing.assert_close(auto, named, rtol=0.05, atol=1.0)


def test_a_digit_is_recovered_from_public_samples_alone(scene):
    scenes = scene("lenet-dlg", trials=2)
    result = GGL(steps=200, restarts=1)(scenes.seen, (0, 1))
    assert (scenes.psnr(result) > 18).all()


def test_batches_are_searched_where_the_labels_are_told(scene):
    scenes = scene("lenet-dlg", trials=1, samples=2, told="honest-but-curious+labels")
    result = GGL(steps=60, restarts=1)(scenes.seen, (0,))
    assert result.inputs.shape == (1, 2, 1, 8, 8)
    assert result.objective < 0.5 * result.trace[:, 0]


def test_free_latents_are_pulled_to_the_normal(scene):
    scenes = scene(MODEL, trials=1)
    free, held = (GGL(steps=60, restarts=1, reach=0.0, kl=kl)(scenes.seen, (0,)) for kl in (0.0, 10.0))
    assert held.objective > free.objective


def test_a_time_budget_ends_it_and_an_interrupt_keeps_what_is_there(in_range, small):
    _, seen = in_range
    result = GGL(steps=10**6, time_budget=0.3)(seen, (0, 1))
    assert result.seconds < 5
    assert result.finished is None

    def stop(share):
        if share > 0:
            raise KeyboardInterrupt

    for how in ({}, {"optimizer": "cma-es", "population": 6}):
        cut = GGL(generator=small[0], steps=400, **how)(seen, (0, 1), stop)
        assert not cut.finished.any()
        assert torch.isfinite(cut.inputs).all()


def test_a_generator_of_something_else_is_refused(scene, tmp_path):
    path = tmp_path / "other.safetensors"
    net = Decoder(Architecture((3, 8, 8), 10, latent=4, width=4))
    save_generator(path, net, Origin("photos", "train", 1, 1, 0, "0"), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(BadInput, match="1x8x8"):
        GGL(generator=str(path))(scene(MODEL).seen, (0, 1))
    with pytest.raises(BadInput, match="no such file"):
        GGL(generator="nowhere.safetensors")(scene(MODEL).seen, (0, 1))


def test_memory_is_reckoned_with_the_whole_population():
    assert GGL(restarts=3).rows_per_trial == 3
    assert GGL(restarts=3, optimizer="cma-es", population=20).rows_per_trial == 60
