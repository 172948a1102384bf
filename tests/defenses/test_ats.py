"""The update is that of the transformed picture, the draw is the trial's own, and bad policies are refused."""

import pytest
import torch

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.linear import Linear
from leakgauge.client.chain import chain, client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.ats import ATS
from leakgauge.defenses.ats.operations import applied, draw, parse
from leakgauge.defenses.ats.undoing import undone_afterwards
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.attempts import attempts_for
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, Known

STEP = client_step(Client())
SEEDS = (4, 5)


@pytest.fixture(scope="module")
def photos():
    return draw_victims(load("photos32"), 2, 2, 0)


@pytest.fixture(scope="module")
def model():
    return load_model("lenet-dlg:filters=4", load("photos32").spec, 0)


@pytest.mark.parametrize("as_released", [False, True])
def test_the_update_is_that_of_the_transformed_pictures(model, photos, as_released):
    defense = ATS(policy="3-1-7/43-18-18", as_released=as_released)
    drawn = draw(parse(defense.policy), SEEDS, 2, as_released=as_released)
    pictures = applied(photos.inputs.flatten(0, 1), drawn).view_as(photos.inputs)
    sent = chain(STEP, defense)(model, photos, SEEDS)
    same = STEP(model, Batch(pictures, photos.labels), SEEDS)
    for name, tensor in sent.tensors.items():
        assert torch.equal(tensor, same.tensors[name])


def test_a_trial_alone_is_drawn_as_among_others(photos):
    together = ATS().trained_on(photos, SEEDS).inputs
    alone = ATS().trained_on(photos.take([1]), SEEDS[1:]).inputs
    assert torch.equal(together[1:], alone)


def test_undone_by_the_client_itself_comes_close(photos):
    defense = ATS(policy="43-18-18")
    back = defense.undone(defense.trained_on(photos, SEEDS).inputs, SEEDS)
    moved = defense.trained_on(photos, SEEDS).inputs
    error, untouched = ((x - photos.inputs).square().mean() for x in (back, moved))
    assert error < untouched / 3


def test_the_informed_attacker_tries_every_way_or_undoes_afterwards(scene):
    defense, attack = ATS(policy="3-1-7"), CPL(restarts=2)
    assert defense.ways(attack) == ("through", "afterwards")
    made = scene(defense, data="photos32")
    through, afterwards = (made.posed(attack, Known(defense, way)) for way in defense.ways(attack))
    assert defense.guesses == 8
    assert attempts_for(through, attack.restarts, attack.schedule) == (8, "halving")
    assert attempts_for(afterwards, attack.restarts, attack.schedule) == (2, "in-turn")
    assert (through.painter is None, afterwards.painter is None) == (False, True)
    assert afterwards.finish is not None


def test_what_a_first_layer_shows_is_undone_afterwards(scene):
    defense, attack = ATS(policy="43-18-18"), Linear()
    assert defense.ways(attack) == ("",)
    made = scene(defense, data="photos32", model="mlp:hidden=16")
    plain, knowing = (attack(made.seen, made.seeds, known=k).inputs for k in ((), (Known(defense),)))
    torch.testing.assert_close(knowing, undone_afterwards(plain, "43-18-18", made.data))
    error, untouched = ((x - made.batch.inputs).square().mean() for x in (knowing, plain))
    assert error < untouched


@pytest.mark.parametrize("policy", ["50", "3-1-50", "", "3--1", "1-2-3-4", "a-b", "3-1-7/"])
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(BadInput, match="policy must be"):
        ATS(policy=policy)


def test_a_table_is_refused():
    table = draw_victims(load("breast-cancer"), 1, 1, 0)
    net = load_model("mlp", load("breast-cancer").spec, 0)
    with pytest.raises(NotApplicable, match="this data is a table"):
        chain(STEP, ATS())(net, table, [0])
