"""The estimate of exposure: larger where a record dominates what is shared, and told beside how far it agrees."""

import dataclasses

import pytest
import torch

from leakgauge.defenses.gaussian import Gaussian
from leakgauge.setup.setup import load_setup
from leakgauge.types import Client, Exposure, Finding, Scenario
from leakgauge.verdict.exposure import alignment, exposure, worst_first

BATCH = Scenario(data="digits", model="mlp:hidden=8", trials=3, batch_size=4)


def setup_of(**changes):
    return load_setup(dataclasses.replace(BATCH, **changes), None, "cpu")


def test_one_record_without_a_defense_is_the_whole_update():
    assert torch.allclose(alignment(setup_of(batch_size=1), ()), torch.ones(3, 1).double(), atol=1e-6)


def test_a_weight_difference_points_the_other_way_and_counts_the_same():
    shared = alignment(setup_of(local=Client(kind="fedavg", lr=0.1)), ())
    assert torch.allclose(shared, alignment(setup_of(), ()), atol=1e-4)


def test_it_is_the_cosine_of_each_records_own_gradient():
    setup = setup_of(trials=1)
    own = [
        setup.update((), setup.model, setup.batch.__class__(setup.batch.inputs[:, [i]], setup.batch.labels[:, [i]]))
        for i in range(4)
    ]
    flat = [torch.cat([t.flatten() for t in u.tensors.values()]).double() for u in own]
    mean = torch.stack(flat).mean(0)
    expected = torch.tensor([torch.nn.functional.cosine_similarity(g, mean, dim=0) for g in flat]).double()
    torch.testing.assert_close(alignment(setup, ())[0], expected, rtol=0, atol=1e-5)


def test_noise_hides_records():
    setup = setup_of()
    assert (alignment(setup, (Gaussian(std=1.0),)).abs() < 0.3).all()


def test_parts_give_what_the_whole_gives(monkeypatch):
    setup = setup_of()
    whole = alignment(setup, ())
    monkeypatch.setattr("leakgauge.verdict.exposure.fitting", lambda *_: 3)
    torch.testing.assert_close(alignment(setup, ()), whole)


def test_where_samples_mix_no_record_has_a_gradient_of_its_own():
    setup = setup_of(model="resnet20:width=2", data="photos32", local=Client(batchnorm="train"))
    assert alignment(setup, ()) is None


def findings(scores):
    return [Finding("dlg", "none", False, t, t, {}, tuple({"ssim": s} for s in row)) for t, row in enumerate(scores)]


def test_agreement_is_the_rank_correlation_with_what_was_recovered():
    aligned = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    same = exposure("none", aligned, findings([[0.2, 0.5], [0.6, 0.9]]), "ssim")
    assert same.agreement == pytest.approx(1)
    assert exposure("none", aligned, findings([[0.9, 0.6], [0.5, 0.2]]), "ssim").agreement == pytest.approx(-1)


@pytest.mark.parametrize("scores", [[], [[0.5, 0.5], [0.5, 0.5]], [[None, None], [None, 0.1]]])
def test_nothing_to_compare_with_gives_no_agreement(scores):
    assert exposure("none", torch.tensor([[0.1, 0.2], [0.3, 0.4]]), findings(scores), "ssim").agreement is None


def test_the_most_exposed_come_first():
    found = Exposure("none", ((0.1, 0.9), (0.5, 0.2)), None)
    assert worst_first(found) == [(0, 1, 0.9), (1, 0, 0.5), (1, 1, 0.2), (0, 0, 0.1)]
