"""What a compressed update says: the truth costs nothing under every compression, and something else does."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.idlg import IDLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.defenses.low_rank import LowRank as SendLowRank
from leakgauge.defenses.quantize import Quantize
from leakgauge.defenses.sign import Sign
from leakgauge.defenses.sketch import Sketch
from leakgauge.errors import BadInput
from leakgauge.matching.compression import KINDS, Levels, LowRank, Signs, compressed_distance, compression_of
from leakgauge.matching.problem import puzzle_of
from leakgauge.types import LocalTraining

DEFENSES = (
    Sign(),
    Sign(scale="none"),
    Quantize(bits=1),
    Quantize(bits=3),
    Quantize(bits=8),
    SendLowRank(rank=1),
    SendLowRank(rank=2),
    SendLowRank(rank=2, iterations=1),
    Sketch(),
    Sketch(method="count", seed=4),
)
LENET = "lenet-dlg:filters=4"


def nothing(_: nn.Module, inputs, __):
    return inputs.new_zeros(len(inputs))


def asked(made, defense, distance, informed=True, **fields):
    (knowing,) = defense.adaptive(DLG())
    question = puzzle_of(made.seen, made.batch.labels, distance=distance, prior=nothing, **fields)
    return dataclasses.replace(question, compression=compression_of(knowing.compression) if informed else None)


def value_at(question, inputs):
    return question.evaluator(torch.arange(len(inputs)))(inputs.flatten(1))[0]


@pytest.mark.parametrize("distance", ["l2", "l1", "cosine"])
@pytest.mark.parametrize("defense", DEFENSES, ids=lambda d: d.spec)
def test_the_truth_costs_nothing_to_who_knows_and_something_to_who_does_not(scene, defense, distance):
    made = scene(LENET, samples=2, dtype=torch.float64, defenses=(defense,))
    blind, knowing = (asked(made, defense, distance, informed) for informed in (False, True))
    assert value_at(knowing, made.batch.inputs).abs().max() < 1e-9
    assert value_at(blind, made.batch.inputs).min() > 1e-6
    assert value_at(knowing, 1 - made.batch.inputs).min() > 1e-6


@pytest.mark.parametrize("defense", DEFENSES, ids=lambda d: d.spec)
def test_a_weight_difference_is_read_the_same_way(scene, defense):
    local = LocalTraining(kind="fedavg", lr=0.1, epochs=2)
    made = scene(LENET, samples=2, local=local, dtype=torch.float64, defenses=(defense,))
    replayed = asked(made, defense, "cosine", unrolled=local)
    assert value_at(replayed, made.batch.inputs).abs().max() < 1e-9
    one = LocalTraining(kind="fedavg", lr=0.1)
    made = scene(LENET, local=one, dtype=torch.float64, defenses=(defense,))
    assert value_at(asked(made, defense, "l2"), made.batch.inputs).max() < 1e-9


@pytest.mark.parametrize("defense", DEFENSES, ids=lambda d: d.spec)
def test_the_slope_is_what_central_differences_measure(scene, defense):
    made = scene("mlp:hidden=12,activation=sigmoid", dtype=torch.float64, defenses=(defense,))
    evaluate = asked(made, defense, "l2").evaluator(torch.arange(2))
    g = torch.Generator().manual_seed(0)
    z, direction = torch.rand(2, 2, 64, generator=g, dtype=torch.float64)
    _, slope = evaluate(z)
    measured = (evaluate(z + 1e-6 * direction)[0] - evaluate(z - 1e-6 * direction)[0]) / 2e-6
    torch.testing.assert_close((slope * direction).sum(1), measured, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("defense", DEFENSES, ids=lambda d: d.spec)
def test_trials_do_not_mix(scene, defense):
    made = scene(LENET, trials=3, dtype=torch.float64, defenses=(defense,))
    question = asked(made, defense, "l2")
    z = (1 - made.batch.inputs).flatten(1)
    together = question.evaluator(torch.arange(3))(z)[0]
    for t in range(3):
        alone = question.evaluator(torch.tensor([t]))(z[t : t + 1])[0]
        torch.testing.assert_close(alone[0], together[t])


def test_a_cell_by_hand():
    sent = torch.tensor([[0.0, 1.0, 3.0]])
    low, high = Levels(bits=2).cell(sent)
    assert low.tolist() == [[0, 0.5, 2.5]]
    assert high.tolist() == [[0.5, 1.5, 3]]  # never outside the ends


def test_the_distance_is_zero_in_the_cell_and_grows_outside():
    sent = {"w": torch.tensor([[0.0, 1.0, 3.0]]).expand(4, 3)}
    guesses = torch.tensor([[0.5, 0.5, 2.5], [0.0, 1.5, 3.0], [0.0, 1.75, 3.0], [-1.0, 2.5, 5.0]])
    measured = compressed_distance(Levels(bits=2), sent, "l2")
    assert measured({"w": guesses}).tolist() == [0, 0, 0.0625, 1 + 1 + 4]


def test_after_random_rounding_a_tensor_is_measured_in_units_of_its_step():
    sent = {"w": torch.tensor([[0.0, 2.0, 6.0]]), "b": torch.tensor([[0.0, 30.0]]), "one": torch.tensor([[5.0]])}
    guess = {"w": torch.tensor([[0.0, 3.0, 6.0]]), "b": torch.tensor([[0.0, 35.0]]), "one": torch.tensor([[5.5]])}
    measured = compressed_distance(Levels(bits=2, rounding="stochastic"), sent, "l2")
    assert measured(guess).item() == pytest.approx(0.25 + 0.25 + 0.25)  # a tensor of one value is exact


def test_wrong_signs_cost_what_they_weigh_in_units_of_the_mean():
    sent = {"w": torch.tensor([[2.0, -2.0, 2.0, -2.0]]).expand(2, 4)}
    guesses = {"w": torch.tensor([[1.0, -2.0, 3.0, -2.0], [-1.0, -2.0, 3.0, -2.0]])}
    assert compressed_distance(Signs(), sent, "l2")(guesses).tolist() == [0, 0.25]
    halved = {"w": guesses["w"] / 2}
    assert compressed_distance(Signs(), sent, "l2")(halved).tolist() == [
        0.25,
        0.5,
    ]  # (1/2)^2: the size is one entry more
    assert compressed_distance(Signs(scale="none"), sent, "l2")(halved).tolist() == [0, 0.25]


def test_no_gradient_at_all_does_not_satisfy_every_sign():
    sent = {"w": torch.ones(1, 4)}
    zero = {"w": torch.zeros(1, 4, requires_grad=True)}
    value = compressed_distance(Signs(), sent, "l2")(zero)
    assert value.item() == 1
    assert torch.isfinite(torch.autograd.grad(value.sum(), zero["w"])[0]).all()


def test_only_what_no_factor_says_is_free():
    matrix = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    sent = {"w": values[:, :1, None] * left[..., :1] @ right[:, :1]}
    measured = compressed_distance(LowRank(rank=1), sent, "l2")
    free = left[..., 1:2] @ right[:, 3:4]
    assert measured({"w": sent["w"] + 5 * free}).item() < 1e-20
    for bound in (left[..., :1] @ right[:, 3:4], left[..., 2:3] @ right[:, :1], left[..., :1] @ right[:, :1]):
        assert measured({"w": sent["w"] + bound}).item() == pytest.approx(1)
    columns_only = compressed_distance(LowRank(rank=1, exact=False), sent, "l2")
    assert columns_only({"w": sent["w"] + left[..., 2:3] @ right[:, :1]}).item() < 1e-20
    assert columns_only({"w": sent["w"] + left[..., :1] @ right[:, 3:4]}).item() == pytest.approx(1)


def test_a_message_of_lower_rank_is_the_whole_matrix():
    one = torch.einsum("i,j->ij", torch.arange(1.0, 7), torch.arange(1.0, 9))[None].double()
    other = one + torch.einsum("i,j->ij", torch.eye(6)[0] - torch.eye(6)[1] / 2, torch.eye(8)[2] - torch.eye(8)[5] / 2)
    assert compressed_distance(LowRank(rank=2), {"w": one}, "l2")({"w": other}).item() > 1


def test_entries_that_were_not_sent_can_be_left_out_too():
    sent = {"w": torch.tensor([[0.0, 1.0, 3.0]])}
    known = {"w": sent["w"] != 0}
    wild = {"w": torch.tensor([[9.0, 1.0, 3.0]])}
    assert compressed_distance(Levels(bits=2), sent, "l2", known)(wild).item() == 0


@pytest.mark.parametrize("name", KINDS)
def test_text_says_it_all(name):
    assert compression_of(name) == KINDS[name]()
    assert compression_of("none") is None
    assert compression_of("quantize/bits=7/rounding=stochastic") == Levels(bits=7, rounding="stochastic")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantise", "did you mean 'quantize'"),
        ("quantize/bits=99", "quantize: bits must be at least 1 and at most 16"),
        ("sketch/length=3", "field of sketch"),
        ("sign/mean", "written field=value"),
    ],
)
@pytest.mark.parametrize("attack", [IDLG, InvertingGradients])
def test_a_wrong_text_is_refused(scene, text, message, attack):
    with pytest.raises(BadInput, match=message):
        attack(steps=1, compression=text)(scene().seen, (0, 1))


@pytest.mark.parametrize("attack", [IDLG(steps=1, restarts=1), InvertingGradients(steps=2)])
@pytest.mark.parametrize("defense", DEFENSES, ids=lambda d: d.spec)
def test_attacks_that_are_told_run(scene, attack, defense):
    made = scene(LENET, defenses=(defense,))
    (knowing,) = defense.adaptive(attack)
    assert torch.isfinite(knowing(made.seen, (0, 1)).inputs).all()
