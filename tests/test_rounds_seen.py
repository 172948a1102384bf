"""Several rounds of the same samples: fresh noise is averaged away, other entries are filled in, kept ones arrive."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.audit.run import run_audit
from leakgauge.execution.table_cell import run_cell
from leakgauge.matching import gradient_matching
from leakgauge.matching.gradient_matching import with_likelihood
from leakgauge.setup.plan import Cell, informed_by, parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import Client, Fact, Scenario

ROUNDS = 16
SEEN = Client(seen=ROUNDS)
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
    many = load_setup(dataclasses.replace(setup.scenario, local=Client(seen=600)), None, "cpu")
    mean = many.combined_update(parse_chain(chain), setup.model)
    assert distance(averaged, mean) / distance(one, mean) == pytest.approx(1 / ROUNDS, rel=0.15)


@pytest.mark.parametrize("chain", ["prune", "sign", "quantize:bits=2", "soteria", "low-rank", "clip"])
def test_a_defense_without_randomness_sends_the_same_again(chain):
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
    alone, _, _ = both("gaussian:std=0.1", local=Client())
    assert distance(one, alone) == 0


def test_plain_attackers_see_one_round_and_informed_ones_all(monkeypatch):
    chain = "gaussian:std=0.1"
    setup, seen = stage_with(chain), []
    original = Linear.solve

    def noting(self, problem, seeds, progress):
        seen.append(problem.observation)
        return original(self, problem, seeds, progress)

    monkeypatch.setattr(Linear, "solve", noting)
    (known,) = informed_by(Linear(), parse_chain(chain))
    for cell in (Cell(Linear(), chain, False, "linear"), Cell(Linear(), chain, True, "linear", known)):
        run_cell(setup, cell, lambda _: None)
    one, averaged = seen
    assert one.fact(Fact.LOCAL_TRAINING).seen == 1
    assert averaged.fact(Fact.LOCAL_TRAINING).seen == ROUNDS
    assert distance(one.update, setup.update(parse_chain("gaussian:std=0.1"), setup.model)) == 0
    assert distance(averaged.update, one.update) > 0


def test_a_closed_form_gains_6_decibels_whenever_the_rounds_are_4_times_as_many():
    """Where the noise is small its error is linear in it, and the root of 4 is a factor of 2."""

    def psnr(rounds):
        scenario = dataclasses.replace(
            TINY, defenses=("gaussian:std=0.003",), local=Client(seen=rounds), variants="adaptive", trials=4
        )
        report, _ = run_audit(scenario, undefended=False)
        return next(r.metrics["psnr_mean_per_image"].value for r in report.summary if r.adaptive)

    one, four, sixteen = (psnr(r) for r in (1, 4, 16))
    assert four - one == pytest.approx(6, abs=1)
    assert sixteen - four == pytest.approx(6, abs=1)


def restated(chain, monkeypatch, **local):
    """The problem that DLG is informed of, that which it solves, and the scale of the noise in it."""
    setup, seen = stage_with(chain, local=Client(**local)), []

    def stopped(problem):
        seen.append((problem, *with_likelihood(problem)))
        raise StopIteration

    monkeypatch.setattr(gradient_matching, "with_likelihood", stopped)
    (known,) = informed_by(DLG(), parse_chain(chain))
    with pytest.raises((StopIteration, RuntimeError)):
        run_cell(setup, Cell(DLG(), chain, True, "dlg", known), lambda _: None)
    (found,) = seen
    return found


def test_the_weights_of_likelihood_and_prior_follow_the_noise(monkeypatch):
    informed, solved, scale = restated("gaussian:std=0.1", monkeypatch, seen=16)
    assert scale == pytest.approx(informed.noise.scale / 4)
    assert solved.variation == pytest.approx(informed.variation / 16)


def test_the_weights_follow_stochastic_rounding(monkeypatch):
    chain = "quantize:bits=2,rounding=stochastic"
    (_, once, _), (_, often, _) = (restated(chain, monkeypatch, seen=rounds) for rounds in (1, 16))
    assert often.variation == pytest.approx(once.variation / 16)


def test_the_mean_of_laplace_draws_is_compared_by_squares(monkeypatch):
    informed, solved, scale = restated("laplace:scale=0.1", monkeypatch, seen=8)
    assert (informed.noise.distance, solved.distance) == ("l1", "l2")
    assert scale == pytest.approx(0.05)
    assert solved.variation == pytest.approx(10 * 2 * 0.05**2)


def test_holes_are_filled_as_before(monkeypatch):
    informed, solved, _ = restated("random-mask", monkeypatch, seen=16)
    assert solved.variation == informed.variation > 0


def test_one_round_changes_nothing(monkeypatch):
    informed, solved, scale = restated("laplace:scale=0.1", monkeypatch, seen=1)
    assert (informed.noise.distance, informed.variation, informed.noise.scale) == (
        solved.distance,
        solved.variation,
        scale,
    )
