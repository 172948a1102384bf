"""METHODS D4: an attacker who knows the slices' bounds and noise names the noised ones and fits the others."""

import dataclasses

import pytest
import torch
from leakgauge.matching.robust_slices import _energies

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.sensitivity.defense import Sensitivity
from leakgauge.errors import NotApplicable
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.types import LocalTraining, threat_model

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
        local = LocalTraining(kind=kind)
        update = chain(client_step(local), defense)(net, batch, range(TRIALS))
        facts = facts_about(net, batch, digits.spec, local, None)
        return observe(net, update, threat_model("honest-but-curious"), facts), batch

    return run


def psnr(attack, seen, defense, digits, kind="fedsgd"):
    observation, batch = seen(defense, kind)
    found = attack(observation, range(TRIALS))
    return score(batch, found, digits.spec).records["psnr"].mean(), found


def named(found):
    return [sorted(int(w) for w in note.split(":")[1].split()) for note in found.notes]


@pytest.mark.parametrize("kind", ["fedsgd", "fedavg"])
def test_noised_slices_are_named_and_the_picture_comes_back(seen, digits, kind):
    std = 0.1 if kind == "fedsgd" else 0.1 * LocalTraining().lr  # the same noise, in a weight difference
    defense = Sensitivity(gamma=0.2, std=std, root=10)
    attack = CPL(steps=STEPS)
    robust, _ = defense.adaptive(attack)
    plain, _ = psnr(attack, seen, defense, digits, kind)
    informed, found = psnr(robust, seen, defense, digits, kind)
    assert named(found) == defense.public.chosen(range(TRIALS)).sort().values.tolist()
    assert informed > plain + 10
    assert (found.trace[:, 0] > found.objective).all()


def test_small_noise_is_weighted_down_and_not_left_out(seen, digits):
    defense = Sensitivity(gamma=0.5, std=1e-4, root=10)
    robust, _ = defense.adaptive(CPL(steps=STEPS, absolute_threshold=1e-4))
    dropping = dataclasses.replace(robust, noised_slices=robust.noised_slices.replace("std=0.0001", "std=0.1"))
    weighted, _ = psnr(robust, seen, defense, digits)
    left_out, _ = psnr(dropping, seen, defense, digits)
    assert weighted > left_out


def test_an_open_choice_needs_no_naming(seen, digits):
    defense = Sensitivity(gamma=0.3, secret=False, root=10)
    robust, _ = defense.adaptive(CPL(steps=STEPS))
    score_, found = psnr(robust, seen, defense, digits)
    assert named(found) == defense.public.chosen(range(TRIALS)).sort().values.tolist()
    assert score_ > 15


def test_it_serves_attacks_on_directions_too(seen, digits):
    defense = Sensitivity(gamma=0.2, root=10)
    attack = InvertingGradients(steps=60)
    robust, _ = defense.adaptive(attack)
    plain, _ = psnr(attack, seen, defense, digits)
    informed, found = psnr(robust, seen, defense, digits)
    assert len(found.notes) == TRIALS
    assert informed > plain


def test_trials_together_equal_trials_alone(seen):
    observation, _ = seen(Sensitivity(gamma=0.2, root=10))
    robust, _ = Sensitivity(gamma=0.2, root=10).adaptive(CPL(steps=3))
    together = robust(observation, range(TRIALS))
    alone = robust(observation.take([1]), [1])
    torch.testing.assert_close(alone.inputs[0], together.inputs[1], rtol=1e-2, atol=1e-2)


def test_a_compressed_update_is_refused(seen):
    observation, _ = seen(Sensitivity(gamma=0.2, root=10))
    with pytest.raises(NotApplicable, match="not compressed"):
        CPL(steps=1, noised_slices="noised=2", compression="sign")(observation, range(TRIALS))


def test_energies_are_summed_by_slice():
    rows, ids = [torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0]])], [torch.tensor([0, 1, 1]), torch.tensor([0])]
    assert _energies(rows, ids, 3).tolist() == [[17.0, 13.0, 0.0]]
