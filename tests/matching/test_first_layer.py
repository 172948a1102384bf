"""The problems of a first layer: what an attack sees is in them, and a defense changes no more than it says."""

import dataclasses

import torch

from leakgauge.attacks.linear import Linear
from leakgauge.defenses.prune import Prune
from leakgauge.matching.first_layer import COMPUTED, LARGEST, LEAST_SQUARES, SOLVED, FirstLayer, PeeledLayer


def test_the_first_layer_holds_its_own_gradient_and_no_knowledge(scene):
    made = scene("mlp:hidden=6")
    problem = Linear().problem(made.seen, (0, 1))
    assert torch.equal(problem.weight, made.seen.update.tensors[f"{problem.layer}.weight"])
    assert torch.equal(problem.bias, made.seen.update.tensors[f"{problem.layer}.bias"])
    assert problem.gradient.keys() == made.seen.update.tensors.keys()
    told = (problem.combine, problem.match_nonzero, problem.fit_scale, problem.undo)
    assert told == (LARGEST, False, False, None)


def test_replacing_a_field_leaves_the_problem_and_the_other_fields_alone(scene):
    problem = Linear().problem(scene("mlp:hidden=6").seen, (0, 1))
    changed = problem.replace(combine=LEAST_SQUARES)
    assert isinstance(changed, FirstLayer)
    assert (problem.combine, changed.combine) == (LARGEST, LEAST_SQUARES)
    assert all(
        getattr(changed, field.name) is getattr(problem, field.name)
        for field in dataclasses.fields(FirstLayer)
        if field.name != "combine"
    )
    peeled = PeeledLayer(problem.observation)
    assert (peeled.coefficients, peeled.replace(coefficients=SOLVED).coefficients) == (COMPUTED, SOLVED)


def test_each_kind_is_rewritten_by_a_rule_of_its_own(scene):
    seen = scene("mlp:hidden=6").seen
    first, peeled = Linear().problem(seen, (0, 1)), PeeledLayer(seen)
    assert (FirstLayer.rule, PeeledLayer.rule) == ("informs_first_layer", "informs_peeled")
    assert Prune().informs(first, seen, "").match_nonzero
    assert Prune().informs(peeled, seen, "") is peeled  # it has no rule for batches
