"""What a compressed update says: the truth costs nothing under every compression, and something else does."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.idlg import IDLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.defenses.low_rank import LowRank
from leakgauge.defenses.quantize import Quantize
from leakgauge.defenses.sign import Sign
from leakgauge.defenses.sketch import Sketch
from leakgauge.types import Client, Known

DEFENSES = (
    Sign(),
    Sign(scale="none"),
    Quantize(bits=1),
    Quantize(bits=3),
    Quantize(bits=8),
    LowRank(rank=1),
    LowRank(rank=2),
    LowRank(rank=2, iterations=1),
    Sketch(),
    Sketch(method="count", seed=4),
)
each_defense = pytest.mark.parametrize("defense", DEFENSES, ids=lambda d: d.spec)


def known_problem(made, defense, distance, informed=True, **fields):
    """The bare problem, of nothing but the compression where it is known."""
    plain = made.matching(distance=distance, **fields)
    told = made.posed(DLG(), Known(defense)).compression
    return plain.replace(compression=told if informed else None)


def value_at(problem, inputs):
    return problem.evaluator(torch.arange(len(inputs)))(inputs.flatten(1))[0]


@pytest.mark.parametrize("distance", ["l2", "l1", "cosine"])
@each_defense
def test_the_truth_costs_nothing_to_who_knows_and_something_to_who_does_not(scene, defense, distance):
    made = scene(defense, samples=2, dtype=torch.float64)
    blind, knowing = (known_problem(made, defense, distance, informed) for informed in (False, True))
    assert value_at(knowing, made.batch.inputs).abs().max() < 1e-9
    assert value_at(blind, made.batch.inputs).min() > 1e-6
    assert value_at(knowing, 1 - made.batch.inputs).min() > 1e-6


@each_defense
def test_a_weight_difference_is_read_the_same_way(scene, defense):
    local = Client(kind="fedavg", lr=0.1, epochs=2)
    made = scene(defense, samples=2, local=local, dtype=torch.float64)
    replayed = known_problem(made, defense, "cosine", unrolled=local)
    assert value_at(replayed, made.batch.inputs).abs().max() < 1e-9
    made = scene(defense, local=Client(kind="fedavg", lr=0.1), dtype=torch.float64)
    assert value_at(known_problem(made, defense, "l2"), made.batch.inputs).max() < 1e-9


@each_defense
def test_the_slope_is_what_central_differences_measure(scene, defense):
    made = scene(defense, model="mlp:hidden=12,activation=sigmoid", dtype=torch.float64)
    evaluate = known_problem(made, defense, "l2").evaluator(torch.arange(2))
    g = torch.Generator().manual_seed(0)
    z, direction = torch.rand(2, 2, 64, generator=g, dtype=torch.float64)
    _, slope = evaluate(z)
    measured = (evaluate(z + 1e-6 * direction)[0] - evaluate(z - 1e-6 * direction)[0]) / 2e-6
    torch.testing.assert_close((slope * direction).sum(1), measured, rtol=1e-4, atol=1e-7)


@each_defense
def test_trials_do_not_mix(scene, defense):
    made = scene(defense, seeds=(5, 6, 7), dtype=torch.float64)
    problem = known_problem(made, defense, "l2")
    z = (1 - made.batch.inputs).flatten(1)
    together = problem.evaluator(torch.arange(3))(z)[0]
    for t in range(3):
        alone = problem.evaluator(torch.tensor([t]))(z[t : t + 1])[0]
        torch.testing.assert_close(alone[0], together[t])


@pytest.mark.parametrize("attack", [IDLG(steps=1, restarts=1), InvertingGradients(steps=2)], ids=lambda a: a.name)
@each_defense
def test_attacks_that_know_it_run(scene, attack, defense):
    made = scene(defense)
    found = attack(made.seen, made.seeds, known=(Known(defense),))
    assert torch.isfinite(found.inputs).all()


@pytest.mark.parametrize("attack", [DLG(), InvertingGradients()], ids=lambda a: a.name)
@each_defense
def test_who_knows_it_has_more_smoothness_or_as_much_as_before(scene, attack, defense):
    """What the update does not say is left to the prior."""
    made = scene(defense)
    assert made.posed(attack, Known(defense)).variation > made.posed(attack).variation
    smooth = type(attack)(tv=1e6)
    assert made.posed(smooth, Known(defense)).variation == 1e6
