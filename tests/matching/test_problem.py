"""The problem itself: zero at the truth, slopes as measured, local steps replayed, the mask read (A1, A3, G5)."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.dropout import Dropout, draw_masks, visible_masks
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import Matching, matching_of
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, Observation, threat_model

BOTH = torch.arange(2)
ONE_STEP = Client(kind="fedavg", lr=0.1)


def nothing(_: nn.Module, inputs: Tensor, __: Tensor) -> Tensor:
    return inputs.new_zeros(len(inputs))


def problem_of(made, labels=True, distance="l2", **fields) -> Matching:
    return matching_of(made.seen, made.batch.labels if labels else None, distance=distance, prior=nothing, **fields)


def value_at(problem: Matching, inputs: Tensor) -> Tensor:
    return problem.evaluator(torch.arange(len(inputs)))(inputs.flatten(1))[0]


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("distance", ["l2", "l1", "cosine"])
def test_the_truth_answers_it_and_something_else_does_not(scene, samples, distance):
    made = scene(samples=samples, dtype=torch.float64)
    problem = problem_of(made, distance=distance)
    assert value_at(problem, made.batch.inputs).abs().max() < 1e-9
    assert value_at(problem, 1 - made.batch.inputs).min() > 1e-3


def test_with_hidden_labels_the_logits_stand_behind_the_inputs(scene):
    made = scene(samples=3, dtype=torch.float64)
    problem = dataclasses.replace(problem_of(made, labels=False), label_unit=10.0)
    assert problem.width == 3 * 64 + 3 * 10
    logits = 6 * nn.functional.one_hot(made.batch.labels, 10).double()  # 60 in the model's units
    z = torch.cat((made.batch.inputs.flatten(1), logits.flatten(1)), 1)
    inputs, found = problem.split(z)
    assert torch.equal(inputs, made.batch.inputs)
    assert torch.equal(found, 10 * logits)
    assert problem.evaluator(BOTH)(z)[0].max() < 1e-12


@pytest.mark.parametrize("unrolled", [None, Client(kind="fedavg", lr=0.1, epochs=2, batch_size=1)])
def test_the_slope_is_what_central_differences_measure(scene, unrolled):
    """METHODS A1 (iii), through the inputs' units and the unrolled steps; a prior's slope is in it."""
    made = scene("mlp:hidden=6,activation=sigmoid", samples=2, local=unrolled or Client(), dtype=torch.float64)
    problem = dataclasses.replace(
        problem_of(made, labels=False, distance="cosine", unrolled=unrolled),
        label_unit=3.0,
        centre=torch.tensor(0.4).double().view(1, 1, 1),
        unit=torch.tensor(0.3).double().view(1, 1, 1),
        prior=lambda _, inputs, __: 0.1 * (inputs**2).flatten(1).sum(1),
    )
    evaluate = problem.evaluator(BOTH)
    g = torch.Generator().manual_seed(0)
    z, direction = torch.randn(2, 2, problem.width, generator=g, dtype=torch.float64)
    _, slope = evaluate(z)
    measured = (evaluate(z + 1e-5 * direction)[0] - evaluate(z - 1e-5 * direction)[0]) / 2e-5
    torch.testing.assert_close((slope * direction).sum(1), measured, rtol=1e-6, atol=1e-9)


def test_a_prior_that_does_not_count_has_a_slope_all_the_same(scene):
    made = scene(dtype=torch.float64)
    problem = dataclasses.replace(problem_of(made), prior=lambda _, inputs, __: 5 * inputs.flatten(1).sum(1))
    z = made.batch.inputs.flatten(1)
    silent = dataclasses.replace(problem, prior_counts=False)
    (value, slope), (bare, same) = problem.evaluator(BOTH)(z), silent.evaluator(BOTH)(z)
    torch.testing.assert_close(value, 5 * z.sum(1))
    assert bare.max() < 1e-12
    assert torch.equal(slope, same)


def test_rows_belong_to_the_trials_they_name(scene):
    made = scene(trials=3, dtype=torch.float64)
    problem = problem_of(made)
    z = made.batch.inputs.flatten(1)
    mixed = problem.evaluator(torch.tensor([2, 0, 2, 1]))(z[[2, 0, 1, 1]])[0]
    assert (mixed[[0, 1, 3]] < 1e-12).all()
    assert mixed[2] > 1e-3  # trial 1's inputs do not answer trial 2


def test_one_local_step_asks_what_the_gradient_asks(scene):
    """METHODS G5: the difference is -rate x gradient, so the cosine is the same everywhere."""
    plain, moved = scene(samples=2, dtype=torch.float64), scene(samples=2, local=ONE_STEP, dtype=torch.float64)
    elsewhere = torch.rand(plain.batch.inputs.shape, generator=torch.Generator().manual_seed(1)).double()
    unrolled = problem_of(moved, distance="cosine", unrolled=ONE_STEP)
    torch.testing.assert_close(
        value_at(unrolled, elsewhere), value_at(problem_of(plain, distance="cosine"), elsewhere), rtol=1e-8, atol=1e-10
    )


@pytest.mark.parametrize(
    "local", [dataclasses.replace(ONE_STEP, epochs=3), dataclasses.replace(ONE_STEP, batch_size=1)]
)
def test_several_local_steps_are_replayed_to_the_letter(scene, local):
    made = scene(samples=3, local=local, dtype=torch.float64)
    assert value_at(problem_of(made, unrolled=local), made.batch.inputs).max() < 1e-20
    assert value_at(problem_of(made), made.batch.inputs).min() > 1e-9  # the average gradient is only near


@pytest.mark.parametrize("scaled", [False, True])
def test_the_box_is_idempotent_keeps_inputs_in_range_and_frees_labels(scene, scaled):
    problem = problem_of(scene(samples=2), labels=False)
    if scaled:
        problem = dataclasses.replace(
            problem, centre=torch.full((1, 1, 1), 0.3), unit=torch.full((1, 1, 1), 0.2), label_unit=10.0
        )
    z = 9 * torch.randn(2, problem.width, generator=torch.Generator().manual_seed(0))
    once = problem.boxed(z)
    assert torch.equal(problem.boxed(once), once)
    inputs = problem.split(once)[0]
    assert -1e-6 <= inputs.min() < 1e-6 < 1 - 1e-6 < inputs.max() <= 1 + 1e-6
    assert torch.equal(once[:, problem.pixels :], z[:, problem.pixels :])
    inside = torch.full_like(z, 0.1)
    assert torch.equal(problem.boxed(inside), inside)


def test_only_some_tensors_are_compared(scene):
    made = scene(dtype=torch.float64)
    problem = problem_of(made)
    parts = [problem.without(problem.observed.keys() - {name}) for name in problem.observed]
    elsewhere = 1 - made.batch.inputs
    torch.testing.assert_close(sum(value_at(p, elsewhere) for p in parts), value_at(problem, elsewhere))


def test_zeroed_entries_are_not_compared_if_told(scene):
    made = scene(dtype=torch.float64, change=lambda u: u.map(lambda n, t: t * 0 if n == "fc1.weight" else t))
    problem = problem_of(made)
    assert value_at(problem.replace(match_nonzero=True), made.batch.inputs).max() < 1e-12
    assert value_at(problem, made.batch.inputs).min() > 1e-3


# --- dropout ----------------------------------------------------------------------------------------

SEEDS = (21, 22, 23)


def dropped(p: float, samples: int = 1, model: str = "lenet-dlg:filters=4") -> tuple[Batch, Observation]:
    """Clients that trained with dropout, as the attacker sees them; sigmoid features, so none is zero by itself."""
    data = load("digits")
    drawn = draw_victims(data, 3, samples, seed=0)
    batch = Batch(drawn.inputs.double(), drawn.labels)
    defense = Dropout(p=p)
    net = prepared(load_model(model, data.spec, seed=0).double(), defense)
    update = chain(client_step(Client()), defense)(net, batch, SEEDS)
    facts = facts_about(net, batch, data.spec, Client(), None)
    return batch, observe(net, update, threat_model("honest-but-curious"), facts)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_each_trials_own_mask_is_read_off_the_last_layer(p):
    _, seen = dropped(p)
    (name, read), *rest = visible_masks(seen).items()
    assert name == "fc.mask"
    assert rest == []
    assert torch.equal(read != 0, draw_masks(SEEDS, read.shape[1], p) != 0)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_with_the_mask_read_the_truth_answers_and_without_it_does_not(p):
    batch, seen = dropped(p, samples=2)
    blind = matching_of(seen, batch.labels, distance="l2", prior=nothing)
    reading = Dropout(p=p).informs(blind, seen, "")
    assert value_at(reading, batch.inputs).max() < 1e-12
    assert value_at(blind, batch.inputs).min() > 1e-3


def test_reading_a_mask_where_there_is_none_is_not_applicable(scene):
    made = scene()
    with pytest.raises(NotApplicable, match="dropout is read off a model that has it before its last layer"):
        Dropout().informs(problem_of(made), made.seen, "")


def test_reading_a_mask_off_a_frozen_layer_is_not_applicable(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Sigmoid(), nn.Linear(8, 10))
    net[3].weight.requires_grad_(False)
    made = scene(Dropout().prepare(net))
    with pytest.raises(NotApplicable, match="frozen"):
        Dropout().informs(problem_of(made), made.seen, "")
