"""Every sample goes to exactly one client, and the skew is what was asked for."""

import pytest
import torch

from leakgauge.client.partition import classes_per_client, dirichlet, iid, shares
from leakgauge.errors import BadInput
from leakgauge.types import Partition

LABELS = torch.arange(1000) % 10  # 100 of each class


def make(kind: str, labels: torch.Tensor, clients: int, seed: int):
    return {
        "iid": lambda: iid(labels, clients, seed),
        "classes": lambda: classes_per_client(labels, clients, 2, seed),
        "dirichlet": lambda: dirichlet(labels, clients, 0.3, seed),
    }[kind]()


def classes_of(part: torch.Tensor) -> set[int]:
    return set(LABELS[part].tolist())


@pytest.mark.parametrize("kind", ["iid", "classes", "dirichlet"])
@pytest.mark.parametrize("clients", [1, 3, 7, 20])
def test_every_sample_goes_to_exactly_one_client(kind, clients):
    parts = make(kind, LABELS, clients, seed=4)
    assert len(parts) == clients
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(1000))


@pytest.mark.parametrize("kind", ["iid", "classes", "dirichlet"])
def test_the_seed_decides(kind):
    first, again, other = (make(kind, LABELS, 5, seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_shares_are_equal_up_to_one_and_mixed():
    parts = iid(LABELS, 7, seed=0)
    sizes = {len(p) for p in parts}
    assert max(sizes) - min(sizes) <= 1
    assert all(len(classes_of(p)) == 10 for p in parts)


@pytest.mark.parametrize("classes", [1, 2, 5, 10])
def test_each_client_holds_exactly_so_many_classes(classes):
    parts = classes_per_client(LABELS, 20, classes, seed=0)
    assert all(len(classes_of(p)) == classes for p in parts)


def test_with_too_few_slots_the_labels_left_over_are_not_lost():
    parts = classes_per_client(LABELS, 2, 2, seed=0)
    assert classes_of(torch.cat(parts)) == set(range(10))


def test_a_small_alpha_is_skewed_and_a_large_one_is_not():
    def largest_share(alpha: float) -> float:
        """Mean over clients of their commonest class's share."""
        parts = [p for p in dirichlet(LABELS, 10, alpha, seed=0) if len(p)]
        return sum(float(LABELS[p].bincount().max()) / len(p) for p in parts) / len(parts)

    assert largest_share(0.05) > 0.6
    assert largest_share(1000.0) < 0.15


@pytest.mark.parametrize("kind", ["iid", "classes", "dirichlet"])
@pytest.mark.parametrize("clients", [0, -1, 1001])
def test_a_number_of_clients_that_cannot_be_is_refused(kind, clients):
    with pytest.raises(BadInput, match="clients must be 1 to 1000"):
        make(kind, LABELS, clients, seed=0)


@pytest.mark.parametrize("classes", [0, 11])
def test_a_number_of_classes_that_cannot_be_is_refused(classes):
    with pytest.raises(BadInput, match="classes per client must be 1 to 10"):
        classes_per_client(LABELS, 5, classes, seed=0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_an_alpha_that_cannot_be_is_refused(alpha):
    with pytest.raises(BadInput, match="alpha must be above 0"):
        dirichlet(LABELS, 5, alpha, seed=0)


@pytest.mark.parametrize("kind", ["none", "iid", "classes", "dirichlet"])
def test_shares_follow_the_scenarios_partition(kind):
    found = shares(LABELS, Partition(kind=kind, clients=4, classes=3, alpha=0.2), seed=1)
    expected = {
        "none": [torch.arange(1000)],
        "iid": iid(LABELS, 4, 1),
        "classes": classes_per_client(LABELS, 4, 3, 1),
        "dirichlet": dirichlet(LABELS, 4, 0.2, 1),
    }[kind]
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
