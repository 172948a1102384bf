"""A sketch: short, public, linear, unbiased over its draws, and compared by who knows it."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.defenses.sketch import Sketch, Sketched
from leakgauge.errors import BadInput
from leakgauge.setup.plan import informed_by
from leakgauge.types import Known

TENSORS = {
    "w": torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0)),
    "b": torch.randn(3, 10, generator=torch.Generator().manual_seed(1)),
    "scalar": torch.tensor([-2.0, 0.5, 1.0]),
}
METHODS = ("count", "rotation")


@pytest.mark.parametrize("method", METHODS)
def test_it_is_unbiased_over_its_seeds(defended, method):
    found = torch.cat([defended(Sketch(size=0.5, method=method, seed=s), TENSORS, range(3))["b"] for s in range(1500)])
    found = found.view(1500, 3, 10)
    error = found.std(0) / 1500**0.5
    assert ((found.mean(0) - TENSORS["b"]).abs() < 4.5 * error).all()


@pytest.mark.parametrize("method", METHODS)
def test_estimates_of_all_clients_lie_in_one_space_as_long_as_the_sketch(defended, method):
    many = {"w": torch.randn(80, 60, generator=torch.Generator().manual_seed(3))}
    shared = defended(Sketch(size=0.25, method=method), many, range(80))["w"]
    assert torch.linalg.matrix_rank(shared, rtol=1e-4) <= 15


@pytest.mark.parametrize("method", METHODS)
def test_sketches_add_up(defended, method):
    """What the server makes of the mean is the mean of what it makes of each."""
    one = defended(Sketch(method=method), TENSORS, range(3))["w"].mean(0)
    mean = defended(Sketch(method=method), {"w": TENSORS["w"].mean(0, keepdim=True)})["w"][0]
    torch.testing.assert_close(one, mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_trials_do_not_mix_and_one_number_is_exact(defended, method):
    together = defended(Sketch(method=method), TENSORS, range(3))
    alone = defended(Sketch(method=method), {n: t[1:2] for n, t in TENSORS.items()}, (1,))
    for name in TENSORS:
        torch.testing.assert_close(alone[name][0], together[name][1])
    torch.testing.assert_close(together["scalar"], TENSORS["scalar"])


def test_it_costs_the_length_of_the_sketch():
    assert Sketch(size=0.25).bytes_up({n: t.shape[1:] for n, t in TENSORS.items()}) == 4 * (16 + 3 + 1)


@pytest.mark.parametrize(("field", "value"), [("size", 0), ("size", 1.5), ("method", "hash"), ("seed", -1)])
def test_fields_are_checked(field, value):
    with pytest.raises(BadInput, match=f"sketch: {field}"):
        Sketch(**{field: value})


@pytest.mark.parametrize("attack", [DLG(labels="infer"), InvertingGradients()], ids=lambda a: a.name)
def test_the_attacker_who_knows_compares_sketches_and_does_not_read_the_label(scene, attack):
    defense = Sketch(size=0.5, method="count", seed=3)
    assert defense.ways(attack) == ("",)
    made = scene(defense)
    posed = made.posed(attack, Known(defense))
    assert posed.compression == Sketched(size=0.5, method="count", seed=3)
    assert made.posed(attack).labels is not None
    assert posed.labels is None


def test_labels_that_were_revealed_stay(scene):
    made = scene(Sketch(), told="honest-but-curious+labels")
    assert torch.equal(made.posed(DLG(), Known(Sketch())).labels, made.batch.labels)


def test_a_first_layer_is_fitted_to_all_rows_and_a_floor_has_nothing_to_know(first_layer):
    known = first_layer(Sketch())
    assert (known.combine, known.match_nonzero) == ("least-squares", False)
    assert Sketch().ways(RandomGuess()) == ()


@pytest.mark.parametrize("method", METHODS)
def test_knowing_it_helps(attacked, method):
    defense, attack = Sketch(method=method), DLG(steps=5, restarts=1)
    (known,) = informed_by(attack, (defense,))
    plain, adaptive = (attacked(defense, attack, "lenet-dlg:filters=6", k) for k in ((), known))
    assert adaptive.mean() > plain.mean() + 2
