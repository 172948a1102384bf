"""METHODS D2 and golden test G19: what is not sent is kept, and nothing is lost on the way."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.defenses.dgc import DGC, one_round
from leakgauge.defenses.prune import Prune
from leakgauge.errors import BadInput
from leakgauge.setup.plan import informed_by
from leakgauge.types import Known

TENSORS = {
    "w": torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0)),
    "k": torch.randn(3, 4, 2, 3, 3, generator=torch.Generator().manual_seed(1)),
    "b": torch.randn(3, 10, generator=torch.Generator().manual_seed(2)),
    "scalar": torch.randn(3, generator=torch.Generator().manual_seed(3)),
}


def played(gradient, share, momentum, rounds):
    """(what each round sent, what is kept at the end)"""
    sent, velocity, kept = [], torch.zeros_like(gradient), torch.zeros_like(gradient)
    for _ in range(rounds):
        message, velocity, kept = one_round(gradient, velocity, kept, share, momentum)
        sent.append(message)
    return sent, kept


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("rounds", [1, 4, 11])
def test_without_momentum_what_was_sent_and_what_is_kept_add_up(share, rounds):
    """G19."""
    gradient = TENSORS["w"].double()
    sent, kept = played(gradient, share, 0.0, rounds)
    torch.testing.assert_close(sum(sent) + kept, rounds * gradient, rtol=1e-12, atol=1e-12)


def test_by_hand():
    """Half of four entries, momentum 0.5. Round 2 has v = g where round 1 sent, and g + 1.5 g where it did not."""
    gradient = torch.tensor([[[8.0, 4.0], [2.0, -1.0]]])
    sent, kept = played(gradient, 0.5, 0.5, 2)
    assert sent[0].tolist() == [[[8, 4], [0, 0]]]
    assert sent[1].tolist() == [[[8, 0], [5, 0]]]
    assert kept.tolist() == [[[0, 4], [0, -2.5]]]


@pytest.mark.parametrize(("share", "rounds"), [(0.9, 1), (0.9, 5), (0.5, 3), (0.99, 2)])
def test_exactly_the_floor_of_the_share_is_kept_back_in_every_round(defended, share, rounds):
    message = defended(DGC(share=share, rounds=rounds), TENSORS, range(3))
    for name in ("w", "k"):
        entries = TENSORS[name][0].numel()
        assert ((message[name] == 0).flatten(1).sum(1) == int(share * entries)).all()


def test_vectors_are_sent_as_they_are(defended):
    message = defended(DGC(share=0.9, rounds=4), TENSORS, range(3))
    assert torch.equal(message["b"], TENSORS["b"])
    assert torch.equal(message["scalar"], TENSORS["scalar"])


def test_the_first_round_prunes(defended):
    first, pruned = (defended(d, {"w": TENSORS["w"]}, range(3))["w"] for d in (DGC(share=0.8), Prune(share=0.8)))
    assert torch.equal(first, pruned)


def test_without_momentum_an_entry_arrives_as_the_multiple_of_the_rounds_it_waited():
    gradient = TENSORS["k"].double()
    sent, _ = played(gradient, 0.7, 0.0, 6)
    waited = torch.zeros_like(gradient)
    for message in sent:
        waited = waited + 1
        arrived = message != 0
        torch.testing.assert_close(message[arrived], (waited * gradient)[arrived])
        waited = waited * ~arrived
    ever = torch.stack([m != 0 for m in sent]).any(0)
    assert ever.double().mean() > 2 * 0.3  # a round sends 0.3 of them, and not the same ones every time


def test_the_last_round_is_the_one_that_is_attacked(defended):
    sent, _ = played(TENSORS["w"], 0.9, 0.9, 5)
    assert torch.equal(defended(DGC(rounds=5), TENSORS, range(3))["w"], sent[-1])


def test_momentum_is_cleared_where_an_entry_was_sent():
    gradient = TENSORS["w"]
    sent, velocity, kept = one_round(gradient, gradient, gradient, 0.5, 0.9)
    assert (velocity[sent != 0] == 0).all()
    assert (kept[sent != 0] == 0).all()
    torch.testing.assert_close(velocity[sent == 0], 1.9 * gradient[sent == 0])


def test_trials_are_compressed_apart(defended):
    together = defended(DGC(share=0.6, rounds=3), TENSORS, range(3))
    for t in range(3):
        alone = defended(DGC(share=0.6, rounds=3), {n: v[t : t + 1] for n, v in TENSORS.items()})
        assert all(torch.equal(alone[n][0], together[n][t]) for n in TENSORS)


@pytest.mark.parametrize("rounds", [1, 3])
def test_keeping_nothing_back_is_the_identity_and_has_no_adaptive_attack(defended, rounds):
    message = defended(DGC(share=0, rounds=rounds), TENSORS, range(3))
    assert all(torch.equal(message[n], TENSORS[n]) for n in TENSORS)
    assert DGC(share=0).ways(DLG()) == ()


@pytest.mark.parametrize(("field", "value"), [("share", 1.1), ("share", -0.1), ("momentum", 1.5), ("rounds", 0)])
def test_fields_are_checked(field, value):
    with pytest.raises(BadInput, match=f"dgc: {field}"):
        DGC(**{field: value})


def test_the_attacker_who_knows_matches_only_what_was_sent(scene, first_layer):
    assert DGC().ways(DLG()) == ("",)
    posed = scene(DGC()).posed(DLG(), Known(DGC()))
    assert posed.match_nonzero
    assert posed.variation == 1e-4
    known = first_layer(DGC())
    assert (known.combine, known.match_nonzero) == ("least-squares", True)
    assert DGC().ways(RandomGuess()) == ()


def test_the_attacked_gradient_is_the_compressed_one(attacked):
    clean, compressed = (attacked(DGC(share=s), Linear(), "mlp:hidden=32").mean() for s in (0.0, 0.9))
    assert clean > compressed + 10


def test_knowing_it_helps(attacked):
    defense, attack = DGC(share=0.9), DLG(steps=5, restarts=1)
    (known,) = informed_by(attack, (defense,))
    plain, adaptive = (attacked(defense, attack, "lenet-dlg:filters=6", k) for k in ((), known))
    assert adaptive.mean() > plain.mean() + 2


def test_it_costs_values_and_indices_and_vectors_whole():
    shapes = {n: t.shape[1:] for n, t in TENSORS.items()}
    assert DGC(share=0.9).bytes_up(shapes) == 8 * (7 + 8) + 4 * (10 + 1)
    assert DGC(share=0).bytes_up(shapes) == 4 * (63 + 72 + 10 + 1)


def test_it_promises_nothing():
    assert DGC().guarantee() is None
