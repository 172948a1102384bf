"""Scores of policies against their definitions (G17)."""

import pytest
import torch
from torch import nn

from leakgauge.defenses.ats import scores
from leakgauge.defenses.ats.scores import (
    POINTS,
    accuracy_scores,
    firsts,
    input_gradients,
    privacy_scores,
    similarity,
    spread,
)


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()


def test_privacy_is_the_definition_picture_by_picture():
    model, pictures, noise = small(), torch.rand(3, 1, 8, 8), torch.rand(3, 1, 8, 8)
    labels = torch.tensor([0, 3, 4])

    def gradient(x, y):
        return torch.autograd.grad(nn.functional.cross_entropy(model(x[None]), y[None]), list(model.parameters()))

    for m, found in enumerate(privacy_scores(model, noise, pictures[None], labels)[0]):
        goal = gradient(pictures[m], labels[m])
        by_hand = []
        for i in range(POINTS + 1):
            mine = gradient(i / POINTS * pictures[m] + (1 - i / POINTS) * noise[m], labels[m])
            cosines = [
                nn.functional.cosine_similarity(a.flatten(), b.flatten(), 0) for a, b in zip(mine, goal, strict=True)
            ]
            by_hand.append(torch.stack(cosines).mean())
        assert by_hand[-1] == pytest.approx(1, abs=1e-6)
        assert float(found) == pytest.approx(float(torch.trapezoid(torch.stack(by_hand), dx=1 / POINTS)), abs=1e-5)


def test_the_picture_itself_is_wholly_similar():
    pictures = torch.rand(2, 1, 8, 8)
    assert privacy_scores(small(), pictures, pictures[None], torch.tensor([1, 2]))[0] == pytest.approx([1, 1], abs=1e-6)


@pytest.mark.parametrize("fit", [100, 6, 4, 2])
def test_policies_together_score_as_each_alone(monkeypatch, fit):
    """Also where only some of the policies, or some of the pictures, fit in memory at once."""
    model, noise, labels = small(), torch.rand(3, 1, 8, 8), torch.tensor([0, 3, 4])
    pictures = torch.rand(4, 3, 1, 8, 8)
    alone = torch.cat([privacy_scores(model, noise, seen[None], labels) for seen in pictures])
    monkeypatch.setattr(scores, "fitting", lambda *_: fit)
    assert torch.allclose(privacy_scores(model, noise, pictures, labels), alone, atol=1e-6)


def test_two_tensors_without_gradient_are_alike_and_one_is_not():
    zero, one = {"a": torch.zeros(1, 3)}, {"a": torch.ones(1, 3)}
    none, some = {"a": torch.zeros(1)}, {"a": torch.tensor([3**0.5])}
    assert similarity(zero, zero, none) == pytest.approx([1])
    assert similarity(zero, one, some) == pytest.approx([0])


@pytest.mark.parametrize("count", [2, 10, 63])
def test_orthogonal_gradients_score_minus_their_number(count):
    rows = torch.linalg.qr(torch.cat([torch.ones(200, 1), torch.randn(200, count)], 1).double())[0][:, 1:].T
    assert spread(rows) == pytest.approx(-count, rel=1e-4)  # columns orthogonal to the ones have mean zero


def test_equal_gradients_are_far_worse():
    assert spread(torch.randn(1, 50).expand(5, 50)) < -1e5


def test_only_the_first_picture_of_a_class_counts():
    model, pictures = small(), torch.rand(4, 1, 8, 8)
    labels = torch.tensor([2, 2, 0, 2])
    assert firsts(labels).tolist() == [0, 2]
    alone = spread(input_gradients(model, pictures[[0, 2]]))
    assert accuracy_scores(model, [(pictures, labels)]) == pytest.approx([alone], rel=1e-4)


def test_batches_together_score_as_alone():
    model = small()
    batches = [(torch.rand(6, 1, 8, 8), torch.arange(6) % 5), (torch.rand(4, 1, 8, 8), torch.arange(4))]
    alone = [float(accuracy_scores(model, [batch])) for batch in batches]
    assert accuracy_scores(model, batches) == pytest.approx(alone, rel=1e-3)


def test_one_class_alone_is_scored():
    assert accuracy_scores(small(), [(torch.rand(2, 1, 8, 8), torch.tensor([1, 1]))]) == pytest.approx([-1], abs=1e-3)
