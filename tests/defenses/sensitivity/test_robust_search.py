"""METHODS D4: an attacker who knows the slices' bounds and noise names the noised ones and fits the others."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.sensitivity import Sensitivity
from leakgauge.defenses.sensitivity.robust_search import _energies
from leakgauge.defenses.sign import Sign
from leakgauge.errors import NotApplicable
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.types import Client, Known, threat_model

TRIALS, STEPS = 2, 12


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.fixture(scope="module")
def seen(digits):
    """seen(defense, local) -> the observation and the secret."""
    net = load_model("lenet-dlg", digits.spec, 0)
    batch = draw_victims(digits, TRIALS, 1, 0)

    def run(defense, kind="fedsgd"):
        local = Client(kind=kind)
        update = chain(client_step(local), defense)(net, batch, range(TRIALS))
        facts = facts_about(net, batch, digits.spec, local, None)
        return observe(net, update, threat_model("honest-but-curious"), facts), batch

    return run


def robust(defense):
    """An attacker who knows the defense and tells its noised slices apart."""
    return (Known(defense, "without noised slices"),)


def psnr(attack, seen, defense, digits, known=(), kind="fedsgd"):
    observation, batch = seen(defense, kind)
    found = attack(observation, range(TRIALS), known=known)
    return score(batch, found, digits.spec).records["psnr"].mean(), found


def named(found):
    return [sorted(int(w) for w in note.split(":")[1].split()) for note in found.notes]


@pytest.mark.parametrize("kind", ["fedsgd", "fedavg"])
def test_noised_slices_are_named_and_the_picture_comes_back(seen, digits, kind):
    std = 0.1 if kind == "fedsgd" else 0.1 * Client().lr  # the same noise, in a weight difference
    defense = Sensitivity(gamma=0.2, std=std, root=10)
    attack = CPL(steps=STEPS)
    plain, _ = psnr(attack, seen, defense, digits, kind=kind)
    informed, found = psnr(attack, seen, defense, digits, robust(defense), kind)
    assert named(found) == defense.chosen(range(TRIALS)).sort().values.tolist()
    assert informed > plain + 10
    assert (found.trace[:, 0] > found.objective).all()


def test_small_noise_is_weighted_down_and_not_left_out(seen, digits):
    defense = Sensitivity(gamma=0.5, std=1e-4, root=10)
    assumed = dataclasses.replace(defense, std=0.1)
    attack = CPL(steps=STEPS, absolute_threshold=1e-4)
    weighted, left_out = (psnr(attack, seen, defense, digits, robust(taken_for))[0] for taken_for in (defense, assumed))
    assert weighted > left_out


def test_an_open_choice_needs_no_naming(seen, digits):
    defense = Sensitivity(gamma=0.3, secret=False, root=10)
    score_, found = psnr(CPL(steps=STEPS), seen, defense, digits, robust(defense))
    assert named(found) == defense.chosen(range(TRIALS)).sort().values.tolist()
    assert score_ > 15


def test_it_serves_attacks_on_directions_too(seen, digits):
    defense = Sensitivity(gamma=0.2, root=10)
    attack = InvertingGradients(steps=60)
    plain, _ = psnr(attack, seen, defense, digits)
    informed, found = psnr(attack, seen, defense, digits, robust(defense))
    assert len(found.notes) == TRIALS
    assert informed > plain


def test_trials_together_equal_trials_alone(seen):
    defense = Sensitivity(gamma=0.2, root=10)
    (observation, _), attack = seen(defense), CPL(steps=3)
    together = attack(observation, range(TRIALS), known=robust(defense))
    alone = attack(observation.take([1]), [1], known=robust(defense))
    torch.testing.assert_close(alone.inputs[0], together.inputs[1], rtol=1e-2, atol=1e-2)


def test_a_compressed_update_is_refused(seen):
    defense = Sensitivity(gamma=0.2, root=10)
    observation, _ = seen(defense)
    with pytest.raises(NotApplicable, match="not compressed"):
        CPL(steps=1)(observation, range(TRIALS), known=(*robust(defense), Known(Sign())))


def test_energies_are_summed_by_slice():
    rows, ids = [torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0]])], [torch.tensor([0, 1, 1]), torch.tensor([0])]
    assert _energies(rows, ids, 3).tolist() == [[17.0, 13.0, 0.0]]
