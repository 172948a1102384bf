"""Several rounds of the same samples: fresh noise is averaged away, other entries are filled in, kept ones arrive."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.audit.run import run_audit
from leakgauge.execution.table_cell import run_cell
from leakgauge.setup.plan import Cell, parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import Fact, LocalTraining, Scenario

ROUNDS = 16
SEEN = LocalTraining(seen=ROUNDS)
TINY = Scenario(data="digits", model="mlp:hidden=64", trials=2, seed=3, local=SEEN, attacks=("linear",))
FRESH = (
    "gaussian:std=0.1",
    "laplace:scale=0.1",
    "dp-sgd:sigma=0.5",
    "fed-cdp:sigma=0.1",
    "fed-sdp:sigma=0.1",
    "quantize:bits=2,rounding=stochastic",
)


def stage_with(chain, **changes):
    return load_setup(dataclasses.replace(TINY, defenses=(chain,), **changes), None, "cpu")


def both(chain, **changes):
    """What is seen of one round and of all, and of one without whatever is random."""
    setup, defenses = stage_with(chain, **changes), parse_chain(chain)
    return setup.update(defenses, setup.model), setup.combined_update(defenses, setup.model), setup


def distance(one, other):
    return sum(float((one.tensors[n] - t).square().sum()) for n, t in other.tensors.items())


@pytest.mark.parametrize("chain", FRESH)
def test_the_variance_of_fresh_noise_falls_by_the_number_of_rounds(chain):
    one, averaged, setup = both(chain)
    many = load_setup(dataclasses.replace(setup.scenario, local=LocalTraining(seen=600)), None, "cpu")
    mean = many.combined_update(parse_chain(chain), setup.model)
    assert distance(averaged, mean) / distance(one, mean) == pytest.approx(1 / ROUNDS, rel=0.15)


@pytest.mark.parametrize("chain", ["prune", "sign", "quantize:bits=2", "soteria", "low-rank", "clip"])
def test_a_defence_without_randomness_sends_the_same_again(chain):
    one, combined, _ = both(chain)
    assert distance(one, combined) == 0


@pytest.mark.parametrize("chain", ["dropout", "precode", "sensitivity", "mixup"])
def test_where_one_update_tells_as_much_it_is_taken_alone(chain):
    one, combined, _ = both(chain, model="mlp:hidden=8")
    assert distance(one, combined) == 0


def test_a_mask_shows_other_entries_each_time_and_all_are_exact():
    one, combined, setup = both("random-mask:share=0.9")
    bare = setup.update((), setup.model)
    for name, tensor in combined.tensors.items():
        shown = tensor != 0
        torch.testing.assert_close(tensor[shown], bare.tensors[name][shown])
    weight = next(name for name, t in bare.tensors.items() if t.dim() == 3)
    there = bare.tensors[weight] != 0
    share = float((combined.tensors[weight] != 0)[there].float().mean())
    assert share == pytest.approx(1 - 0.9**ROUNDS, abs=0.03)
    assert float((one.tensors[weight] != 0)[there].float().mean()) == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("first", [1, 3])
def test_what_dgc_keeps_back_arrives_and_is_divided_by_its_waiting(momentum, first):
    one, combined, setup = both(f"dgc:share=0.7,momentum={momentum},rounds={first}")
    bare = setup.update((), setup.model)
    for name, tensor in combined.tensors.items():
        shown = tensor != 0
        torch.testing.assert_close(tensor[shown], bare.tensors[name][shown], rtol=1e-4, atol=1e-6)
    count = [sum(int((u.tensors[n] != 0).sum()) for n in u.tensors) for u in (one, combined, bare)]
    assert count[0] < count[1] <= count[2]


def test_the_first_of_several_rounds_is_the_only_one_that_others_see():
    one, _, _ = both("gaussian:std=0.1")
    alone, _, _ = both("gaussian:std=0.1", local=LocalTraining())
    assert distance(one, alone) == 0


def test_plain_attackers_see_one_round_and_informed_ones_all(monkeypatch):
    setup, seen = stage_with("gaussian:std=0.1"), {}
    original = Linear.reconstruct

    def noting(self, observation, seeds, progress):
        seen[self.combine] = observation
        return original(self, observation, seeds, progress)

    monkeypatch.setattr(Linear, "reconstruct", noting)
    for attack, adaptive in ((Linear(), False), (Linear(combine="least-squares"), True)):
        run_cell(setup, Cell(attack, "gaussian:std=0.1", adaptive, "linear"), lambda _: None)
    one, averaged = seen[Linear().combine], seen["least-squares"]
    assert one.fact(Fact.LOCAL_TRAINING).seen == 1
    assert averaged.fact(Fact.LOCAL_TRAINING).seen == ROUNDS
    assert distance(one.update, setup.update(parse_chain("gaussian:std=0.1"), setup.model)) == 0
    assert distance(averaged.update, one.update) > 0


def test_a_closed_form_gains_6_decibels_whenever_the_rounds_are_4_times_as_many():
    """Where the noise is small its error is linear in it, and the root of 4 is a factor of 2."""

    def psnr(rounds):
        scenario = dataclasses.replace(
            TINY, defenses=("gaussian:std=0.003",), local=LocalTraining(seen=rounds), variants="adaptive", trials=4
        )
        report, _ = run_audit(scenario, undefended=False)
        return next(r.metrics["psnr_mean_per_image"].value for r in report.summary if r.adaptive)

    one, four, sixteen = (psnr(r) for r in (1, 4, 16))
    assert four - one == pytest.approx(6, abs=1)
    assert sixteen - four == pytest.approx(6, abs=1)


def restated(attack, chain, **local):
    setup = stage_with(chain, local=LocalTraining(**local))
    (informed,) = parse_chain(chain)[-1].adaptive(attack)
    seen = []
    told = type(informed)._match

    def stopped(self, *_):
        seen.append(self)
        raise StopIteration

    type(informed)._match = stopped
    try:
        cell = Cell(informed, chain, True, attack.name)
        with pytest.raises((StopIteration, RuntimeError)):
            run_cell(setup, cell, lambda _: None)
    finally:
        type(informed)._match = told
    return informed, seen[0]


def test_the_weights_of_likelihood_and_prior_follow_the_noise():
    told, used = restated(DLG(), "gaussian:std=0.1", seen=16)
    assert used.noise_std == pytest.approx(told.noise_std / 4)
    assert used.tv == pytest.approx(told.tv / 16)
    told, used = restated(DLG(), "quantize:bits=2,rounding=stochastic", seen=16)
    assert used.tv == pytest.approx(told.tv / 16)


def test_the_mean_of_laplace_draws_is_compared_by_squares():
    told, used = restated(DLG(), "laplace:scale=0.1", seen=8)
    assert (told.distance, used.distance) == ("l1", "l2")
    assert used.noise_std == pytest.approx(0.05)
    assert used.tv == pytest.approx(10 * 2 * 0.05**2)


def test_holes_are_filled_as_before():
    told, used = restated(DLG(), "random-mask", seen=16)
    assert used.tv == told.tv


def test_one_round_changes_nothing():
    told, used = restated(DLG(), "laplace:scale=0.1", seen=1)
    assert (told.distance, told.tv, told.noise_std) == (used.distance, used.tv, used.noise_std)
