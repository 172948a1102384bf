"""What a defense tells an attacker: knowing it, the truth costs less, and what several defenses tell composes."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.gias import GIAS
from leakgauge.attacks.gradinversion import GradInversion
from leakgauge.attacks.grnn import GRNN
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.defenses._clipping import Clipping
from leakgauge.defenses.ats import ATS
from leakgauge.defenses.ats.operations import draw, parse
from leakgauge.defenses.ats.undoing import AFTERWARDS, THROUGH, undone_afterwards, ways, ways_drawn
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.local_steps import LocalSteps
from leakgauge.defenses.low_rank import LowRank
from leakgauge.defenses.mixup import _FIRST, Mixup
from leakgauge.defenses.mixup import draw as draw_weights
from leakgauge.defenses.precode import SEARCH, Precode
from leakgauge.defenses.prune import Prune
from leakgauge.defenses.quantize import Levels, Quantize
from leakgauge.defenses.sign import Sign
from leakgauge.defenses.sketch import Sketch
from leakgauge.defenses.soteria import Soteria
from leakgauge.errors import BadInput
from leakgauge.matching.problem import innermost, inside
from leakgauge.types import Known

LABELS = "honest-but-curious+labels"
PRECODE = Precode(width=16)
POLICY = ATS(policy="43-18-18")
DEFENSES = {  # one sample each: the truth explains what these clients send
    "soteria": Soteria(),
    "precode": PRECODE,
    "sign": Sign(),
    "quantize": Quantize(bits=3),
    "low-rank": LowRank(rank=1),
    "sketch": Sketch(),
    "local-steps": LocalSteps(steps=3, lr=0.5),
    "clip": Clip(norm=0.01, scope="layer"),
}
ATTACKS = (GRNN(), GradInversion(l2=0.0, restarts=1), DLG(), InvertingGradients(), CPL())
BOTH = torch.arange(2)


def of_pictures(problem):
    """The problem of pictures in [0, 1] and of nothing but the distance."""
    return problem.replace(painter=None, centre=None, unit=None, prior=lambda _, x, __: x.new_zeros(len(x)))


def cost(problem, inputs):
    """(T,) at these inputs, hidden numbers at zero."""
    z = torch.zeros(len(inputs), problem.width, dtype=inputs.dtype)
    z[:, : problem.pixels] = inputs.flatten(1)
    return problem.evaluator(torch.arange(len(inputs)))(z)[0]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
@pytest.mark.parametrize("name", DEFENSES)
def test_the_truth_costs_less_to_whoever_knows_the_defense(scene, name, attack):
    defense = DEFENSES[name]
    assert defense.ways(attack), f"{attack.name} has no use for knowing {name}"
    made = scene(defense, told=LABELS, dtype=torch.float64)
    unaware = cost(of_pictures(made.posed(attack)), made.batch.inputs)
    informed = (of_pictures(made.posed(attack, Known(defense, way))) for way in defense.ways(attack))
    best = torch.stack([cost(problem, made.batch.inputs) for problem in informed])
    assert (best.amin(0) < 1e-3 * unaware).all()


@pytest.mark.parametrize("attack", [GRNN(steps=3), GradInversion(steps=3, restarts=2)], ids=lambda a: a.name)
@pytest.mark.parametrize("samples", [1, 2])
def test_hidden_noise_is_searched_for_beside_the_pictures(scene, attack, samples):
    made = scene(PRECODE, samples=samples, told=LABELS, dtype=torch.float64)
    for way in PRECODE.ways(attack):
        found = attack(made.seen, made.seeds, known=(Known(PRECODE, way),))
        assert found.inputs.shape == made.batch.inputs.shape
        assert torch.isfinite(found.inputs).all()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_a_tensor_that_is_left_out_counts_for_no_attack(scene, attack):
    made = scene(told=LABELS, dtype=torch.float64)
    problem = of_pictures(made.posed(attack, Known(Soteria(), "without the layer")))
    assert "fc.weight" not in problem.observed
    assert (cost(problem, made.batch.inputs) < 1e-4).all()


NAMES = ["0.weight", "0.bias", "2.0.weight", "2.0.bias", "2.1.weight"]


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        (["0.bias"], {"0.bias"}),
        (["0"], {"0.weight", "0.bias"}),
        (["2"], {"2.0.weight", "2.0.bias", "2.1.weight"}),
        (["2.1", "0.weight"], {"2.1.weight", "0.weight"}),
        ([], set()),
    ],
)
def test_a_name_means_a_tensor_or_all_of_a_layer(named, meant):
    assert inside(named, NAMES) == meant


def test_leaving_nothing_out_changes_nothing_and_leaving_all_out_is_refused(scene):
    whole = scene().matching()
    assert whole.without(set()).observed == whole.observed
    with pytest.raises(BadInput, match="what is compared must be some of the tensors"):
        whole.without(set(whole.observed))


def test_all_that_is_known_of_several_defenses_has_its_place(scene):
    chain = (Mixup(), PRECODE, Clip(norm=0.5), LocalSteps(steps=3, lr=0.2), Quantize(bits=3))
    used = {PRECODE: SEARCH}
    made = scene(*chain, samples=2)
    plain, known = made.matching(), made.matching(*(Known(d, used.get(d, "")) for d in chain))
    assert not any("bottleneck" in name or "linear" in name for name in known.observed)
    assert list(known.hidden) == ["fc.bottleneck.noise"]
    assert known.width == known.painter.width + 16 == plain.pixels + 1 + 16
    assert (known.unrolled.epochs, known.unrolled.lr) == (3, 0.2)
    assert known.compression == Levels(3, "nearest")
    assert known.client_gradient.func.__self__ == Clipping(0.5, "whole", "sample")


def test_of_two_weights_of_smoothness_that_of_the_defense_that_acts_last_counts(scene):
    made = scene()
    one, other = Known(Prune()), Known(Sign())
    assert made.posed(DLG(), one, other).variation == made.posed(DLG(), other).variation == 3e-3
    assert made.posed(DLG(), other, one).variation == made.posed(DLG(), one).variation == 1e-4


def went(seeds, samples):
    """The number of the way that each picture went, (T, N), as a guess has it."""
    policy = parse(POLICY.policy)
    drawn = ways_drawn(draw(policy, seeds, samples))
    return torch.tensor([float(ways(policy).index(way)) for way in drawn]).view(len(seeds), samples)


def test_mixtures_of_transformed_pictures_are_explained_by_the_pictures_and_these_are_reported(scene):
    chain = (Mixup(), POLICY)  # the last one changes the samples first
    made = scene(*chain, data="photos32", samples=2, told=LABELS)
    problem = made.matching(Known(chain[0]), Known(POLICY, THROUGH))
    weights, partners = draw_weights(made.seeds, 2, 1.0)
    share = torch.where(partners[:, 0] == 1, weights, 1 - weights)
    z = torch.cat((made.batch.inputs.flatten(1), went(made.seeds, 2), (share.logit() - _FIRST)[:, None].float()), 1)
    assert problem.width == z.shape[1]
    assert (problem.evaluator(BOTH)(z)[0] < 1e-8).all()
    inputs, labels = problem.finish(z)
    assert torch.equal(labels, made.batch.labels)
    torch.testing.assert_close(inputs, problem.painter.plain.finish(z[:, :-1])[0])
    assert (inputs - made.batch.inputs).square().mean() < (problem.split(z)[0] - made.batch.inputs).square().mean()
    guesses = {tuple(problem.opening(z, attempt)[0, -3:-1].tolist()) for attempt in range(8)}
    assert len(guesses) > 1
    for attempt in range(3):
        opened = problem.opening(z, attempt)
        assert torch.equal(opened[:, :-3], z[:, :-3])
        assert torch.equal(opened[:, -1], z[:, -1]), "the weight is no guess"


def test_a_guess_of_an_attempt_leaves_what_a_layer_hides_alone(scene):
    chain = (POLICY, PRECODE)
    problem = scene(*chain, data="photos32").matching(Known(POLICY, THROUGH), Known(PRECODE, SEARCH))
    assert problem.width == problem.painter.width + 16
    z = torch.full((2, problem.width), 0.25)
    opened = problem.opening(z, 3)
    assert torch.equal(opened[:, -16:], z[:, -16:])
    assert torch.equal(opened[:, -17], torch.full((2,), 3.0))


@pytest.mark.parametrize("way", [THROUGH, AFTERWARDS])
@pytest.mark.parametrize("defense", [Sketch(), Prune()], ids=lambda d: d.name)
def test_labels_that_cannot_be_read_are_searched_for_behind_a_policy_too(scene, defense, way):
    made, attack = scene(defense, POLICY, data="photos32"), InvertingGradients(steps=2)
    known = (Known(defense), Known(POLICY, way))
    problem = made.posed(attack, *known)
    logits = problem.split(torch.zeros(2, problem.width))[1]
    assert (logits is None) == (defense.name == "prune")
    found = attack(made.seen, made.seeds, known=known)
    assert found.inputs.shape == made.batch.inputs.shape
    assert found.labels.shape == made.batch.labels.shape


@pytest.mark.parametrize("known", [(), (Known(Mixup()),)], ids=["policy", "mixtures of it"])
@pytest.mark.parametrize("way", [THROUGH, AFTERWARDS])
def test_what_makes_the_pictures_can_be_replaced_inside_all_that_is_around_it(scene, way, known):
    """As `gias` does, which goes on from a generator's latents to its weights."""

    @dataclasses.dataclass(frozen=True)
    class Shifted:
        """A painter with one number more."""

        by: float
        pixels: int = 3 * 32 * 32 * 2

        @property
        def width(self):
            return self.pixels + 1

        def __call__(self, z, _):
            return (z[:, : self.pixels] + self.by).view(-1, 2, 3, 32, 32), None

    made = scene(POLICY, data="photos32", samples=2)
    one, other = (
        made._rewritten(made.matching().replace(painter=Shifted(by)), (*known, Known(POLICY, way))) for by in (0.1, 0.2)
    )
    replaced = innermost(one, lambda problem: problem.replace(painter=Shifted(0.2)))
    z = torch.rand(2, one.width, generator=torch.Generator().manual_seed(0)) / 2
    for mine, wanted in ((replaced.split(z), other.split(z)), (replaced.finish(z), other.finish(z))):
        assert torch.equal(mine[0], wanted[0])
    assert not torch.equal(one.finish(z)[0], other.finish(z)[0])
    assert (replaced.opening is None) == (way == AFTERWARDS)
    if way == THROUGH:
        assert torch.equal(replaced.opening(z, 2), other.opening(z, 2))


def test_gias_undoes_a_policy_on_what_its_own_weights_make(scene):
    made = scene(POLICY, data="photos32", told=LABELS, public=True)
    attack = GIAS(steps=3, weight_steps=3, restarts=1)
    plain, known = (attack(made.seen, made.seeds, known=k) for k in ((), (Known(POLICY, AFTERWARDS),)))
    assert torch.equal(known.objective, plain.objective), "the search is the same"
    torch.testing.assert_close(known.inputs, undone_afterwards(plain.inputs, POLICY.policy, made.data))
