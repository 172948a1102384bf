"""CPL: label first, a patterned start; the regulariser is one that an attacker can compute."""

import torch

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.dlg import DLG
from leakgauge.matching.starts import start_inputs


def test_a_digit_and_its_label_are_recovered(scene):
    made = scene("lenet-cpl")
    result = CPL(steps=60, threshold=1e-7)(made.seen, (0, 1))
    assert made.psnr(result).min() > 20
    assert torch.equal(result.labels, made.batch.labels)


def test_the_default_start_is_the_pattern_and_dlgs_is_random():
    assert CPL().init == "patterned-2"
    assert DLG().init == "random"


def test_records_of_a_table_are_recovered(scene):
    made = scene("mlp:hidden=16", data="breast-cancer")
    assert made.psnr(CPL(steps=60)(made.seen, (0, 1))).min() > 25


def test_the_regulariser_is_zero_for_a_sure_and_right_prediction(scene):
    made = scene("mlp:hidden=16")
    inputs = made.batch.inputs
    attack = CPL(label_weight=2.0)
    problem = attack.problem(made.seen, (0, 1))
    predicted = torch.softmax(made.seen.model(inputs.flatten(0, 1)), -1).view(2, 1, -1).detach()
    assert attack.prior(problem, inputs, predicted).abs().max() < 1e-6
    wrong = attack.prior(problem, inputs, made.batch.labels)
    assert (wrong > 0.1).all()
    assert CPL().prior(problem, inputs, made.batch.labels).eq(0).all()


def test_a_batch_with_hidden_labels_counts_them_unless_they_are_to_be_optimised(scene):
    made = scene("lenet-cpl:filters=3,init=default", samples=5)
    assert torch.equal(CPL(steps=1)(made.seen, (0, 1)).labels, made.batch.labels.sort(1).values)
    assert CPL(steps=1, labels="optimise")(made.seen, (0, 1)).labels.shape == (2, 5)


def test_optimal_start_uses_public_data_only(scene):
    made = scene("mlp:hidden=16")
    assert CPL(init="optimal", steps=1)(made.seen, (0, 1)).inputs.shape == made.batch.inputs.shape
    assert start_inputs("dark", (0,), "x", (1, 4)).shape == (1, 1, 4)
