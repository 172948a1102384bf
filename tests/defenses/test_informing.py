"""What a defence tells an attacker reaches the puzzle of every attack that has the field, and there it is right."""

import dataclasses

import pytest
import torch
from leakgauge.matching.informed import as_told

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.gradinversion import GradInversion
from leakgauge.attacks.grnn import GRNN
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.local_steps import LocalSteps
from leakgauge.defenses.low_rank import LowRank
from leakgauge.defenses.mixup import Mixup
from leakgauge.defenses.precode import Precode
from leakgauge.defenses.quantize import Quantize
from leakgauge.defenses.sign import Sign
from leakgauge.defenses.sketch import Sketch
from leakgauge.defenses.soteria import Soteria
from leakgauge.matching.problem import puzzle_of
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.types import LocalTraining, threat_model

SEEDS = (5, 6)
PRECODE = Precode(width=16)
DEFENSES = {  # one sample each: the truth explains what these clients send
    "soteria": Soteria(),
    "precode": PRECODE,
    "sign": Sign(),
    "quantize": Quantize(bits=3),
    "low-rank": LowRank(rank=1),
    "sketch": Sketch(),
    "local-steps": LocalSteps(steps=3, lr=0.5),
    "clip": Clip(norm=0.01),
}
NEWLY_TOLD = (GRNN(tv=0.0), GradInversion(tv=0.0, l2=0.0, restarts=1))


def seen(*defenses, samples=1):
    """Private digits and what is seen of them, labels included."""
    data = load("digits")
    net = prepared(load_model("lenet-dlg:filters=4", data.spec, 0), *defenses).double()
    batch = draw_victims(data, 2, samples, 0)
    batch = dataclasses.replace(batch, inputs=batch.inputs.double())
    update = chain(client_step(LocalTraining()), *defenses)(net, batch, SEEDS)
    facts = facts_about(net, batch, data.spec, LocalTraining(), None)
    return batch, observe(net, update, threat_model("honest-but-curious+labels"), facts)


def puzzle_for(attack, observation):
    """The attack's own puzzle, of inputs in [0, 1]."""
    if isinstance(attack, GRNN):
        puzzle = attack._puzzle(observation, attack._generator(observation, SEEDS))
        return dataclasses.replace(puzzle, painter=None)
    return dataclasses.replace(attack._puzzle(observation), centre=None, unit=None)


def cost(puzzle, inputs):
    """(T,) at these inputs, hidden numbers at zero."""
    z = torch.zeros(len(inputs), puzzle.width, dtype=inputs.dtype)
    z[:, : puzzle.pixels] = inputs.flatten(1)
    return puzzle.evaluator(torch.arange(len(inputs)))(z)[0]


def nothing(_, inputs, __):
    return inputs.new_zeros(len(inputs))


def test_an_attacker_who_is_told_nothing_has_the_same_puzzle():
    batch, observation = seen()
    puzzle = puzzle_of(observation, batch.labels, distance="l2", prior=nothing)
    same = as_told(puzzle, observation)
    assert same == puzzle


def test_every_word_has_its_place():
    batch, observation = seen(PRECODE, samples=2)
    puzzle = puzzle_of(observation, batch.labels, distance="l2", prior=nothing)
    told = as_told(
        puzzle,
        observation,
        skip="bottleneck",
        bottleneck="search",
        unmix=True,
        repeats=3,
        repeat_lr=0.2,
        compression="quantize/bits=3",
        clipping="norm=0.5",
    )
    assert not any("bottleneck" in name or "linear" in name for name in told.observed)
    assert list(told.hidden) == ["fc.bottleneck.noise"]
    assert told.width == told.painter.width + 16 == puzzle.pixels + 1 + 16
    assert (told.unrolled.epochs, told.unrolled.lr) == (3, 0.2)
    assert (told.compression.bits, told.clipping.norm) == (3, 0.5)


@pytest.mark.parametrize("attack", NEWLY_TOLD, ids=lambda a: a.name)
@pytest.mark.parametrize("name", DEFENSES)
def test_the_truth_costs_less_to_whoever_knows_the_defence(name, attack):
    defense = DEFENSES[name]
    batch, observation = seen(defense)
    informed = defense.adaptive(attack)
    assert informed, f"{attack.name} is not told of {name}"
    assert all(type(better) is type(attack) and better != attack for better in informed)
    unaware = cost(puzzle_for(attack, observation), batch.inputs)
    best = torch.stack([cost(puzzle_for(better.with_fields(tv=0.0), observation), batch.inputs) for better in informed])
    assert (best.amin(0) < 1e-3 * unaware).all()


@pytest.mark.parametrize("attack", [GRNN(steps=3), GradInversion(steps=3, restarts=2)], ids=lambda a: a.name)
@pytest.mark.parametrize("samples", [1, 2])
def test_hidden_noise_is_searched_for_beside_the_pictures(attack, samples):
    batch, observation = seen(PRECODE, samples=samples)
    for better in PRECODE.adaptive(attack):
        found = better(observation, SEEDS)
        assert found.inputs.shape == batch.inputs.shape
        assert torch.isfinite(found.inputs).all()


def test_gradinversion_takes_mixtures_apart():
    (informed,) = Mixup().adaptive(GradInversion(steps=3, restarts=2))
    assert informed.unmix
    batch, observation = seen(Mixup(), samples=3)
    found = informed(observation, SEEDS)
    assert found.inputs.shape == batch.inputs.shape
    assert torch.equal(found.labels, batch.labels)


def test_a_tensor_that_is_left_out_counts_for_no_attack():
    batch, observation = seen()
    for attack in (*NEWLY_TOLD, InvertingGradients()):
        puzzle = puzzle_for(attack.with_fields(skip="last"), observation)
        assert "fc.weight" not in puzzle.observed
        assert (cost(puzzle, batch.inputs) < 1e-4).all()


def test_muting_helps_gradinversion_against_soteria():
    attack = GradInversion(steps=150, restarts=1, noise=0.0)
    batch, observation = seen(Soteria(share=0.9))
    plain, muted = (
        score(batch, a(observation, SEEDS), load("digits").spec).records["psnr"].mean()
        for a in (attack, Soteria(share=0.9).adaptive(attack)[0])
    )
    assert muted > plain + 1


def test_inverting_gradients_and_cpl_are_told_in_the_same_words():
    words = {"skip": "last", "repeats": 2, "compression": "sign", "clipping": "norm=0.1"}
    batch, observation = seen()
    puzzle = InvertingGradients(**words)._puzzle(observation)
    assert puzzle.observed.keys() == {n for n in observation.update.tensors if n != "fc.weight"}
    assert (puzzle.unrolled.epochs, puzzle.compression.name, puzzle.clipping.norm) == (2, "sign", 0.1)
    assert CPL(steps=1, **words)(observation, SEEDS).inputs.shape == batch.inputs.shape
