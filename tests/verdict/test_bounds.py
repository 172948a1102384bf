"""Both sides, and the self-test: measured success stays under the bound, and reaches it where the attack is optimal."""

import pytest
import torch

from leakgauge.client.chain import client_step
from leakgauge.data import load
from leakgauge.defenses.accounting import reconstruction_bound
from leakgauge.defenses.dp_sgd import DPSGD
from leakgauge.defenses.fed_cdp import FedCDP, FedSDP
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.metrics.intervals import at_least, at_most, rate
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, DataSpec
from leakgauge.verdict.bounds import blind_success, both_sides, contradicted, lower_side, standing, upper_side

ONE_STEP = Client()
KAPPA = rate(1, 100, "ssim>=0.6")


# --- which mu ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("defense", "local", "mu"),
    [
        (DPSGD(sigma=2), ONE_STEP, 0.5),
        (FedCDP(sigma=2), ONE_STEP, 0.5),
        (FedSDP(sigma=2), ONE_STEP, 0.5),
        (DPSGD(sigma=2), Client(seen=4), 1.0),
        (DPSGD(sigma=2), Client(kind="fedavg", epochs=4, batch_size=2), 1.0),
        (FedSDP(sigma=2), Client(kind="fedavg", epochs=4), 0.5),  # one noise for the whole update
    ],
)
def test_every_noised_step_that_a_unit_is_used_in_counts(defense, local, mu):
    upper = upper_side([defense], local, KAPPA)
    assert upper.mu == pytest.approx(mu)
    assert upper.gamma == pytest.approx(reconstruction_bound(mu, KAPPA.high))
    assert upper.training is None  # nothing was said of it


def test_the_stated_training_has_a_bound_of_its_own():
    whole = upper_side([DPSGD(sigma=4, q=1, rounds=16)], ONE_STEP, KAPPA)
    assert whole.training.gamma == pytest.approx(reconstruction_bound(1.0, KAPPA.high))
    sampled = upper_side([DPSGD(sigma=4, q=0.01, rounds=16)], ONE_STEP, KAPPA)
    assert KAPPA.high < sampled.training.gamma < whole.training.gamma
    assert "rdp accountant, 16 noised steps" in sampled.training.how


@pytest.mark.parametrize(
    ("defenses", "kappa", "why"),
    [
        ([], KAPPA, "nothing in this configuration is accounted"),
        ([Gaussian(std=10)], KAPPA, "nothing in this configuration is accounted"),
        ([DPSGD(sigma=0)], KAPPA, "no accounted noise"),
        ([DPSGD(norm=0)], KAPPA, "no accounted noise"),
        ([FedCDP(noise="tensor")], KAPPA, "no accounted noise"),
        ([DPSGD(), Gaussian()], KAPPA, "other defenses stand in the chain"),
        ([DPSGD()], None, "blind guess could not be measured"),
    ],
)
def test_without_an_accounted_mechanism_there_is_no_guarantee_and_the_reason_is_said(defenses, kappa, why):
    upper = upper_side(defenses, ONE_STEP, kappa)
    assert not upper.guaranteed
    assert why in upper.why
    assert standing(False, upper) == "unknown"
    assert f"No guarantee: {upper.why}." in both_sides(lower_side(0, 6, None), upper)


# --- in words ---------------------------------------------------------------------------------------


def test_protection_is_what_adds_little_to_a_blind_guess():
    weak, strong = (upper_side([DPSGD(sigma=s)], ONE_STEP, KAPPA) for s in (0.5, 5))
    assert standing(False, weak) == "unknown"
    assert standing(False, strong) == "protected"
    assert standing(True, strong) == "leaks"


def test_kappa_and_what_it_rests_on_are_stated():
    said = both_sides(lower_side(0, 50, None), upper_side([DPSGD(sigma=4)], ONE_STEP, KAPPA))
    assert "mu = 0.25 per sample, one noised step" in said
    assert "(measured: 1 of 100)" in said
    assert said.startswith("No record was shown to be recoverable.")


def test_certificates_are_told():
    assert "4 recoveries carry a proof" in both_sides(lower_side(4, 6, 4), upper_side([], ONE_STEP, None))


def test_more_than_the_guarantee_allows_is_a_contradiction():
    lower, upper = lower_side(50, 50, None), upper_side([DPSGD(sigma=4)], ONE_STEP, KAPPA)
    assert contradicted(lower, upper)
    assert "one of its assumptions does not hold" in both_sides(lower, upper)
    assert not contradicted(lower_side(1, 50, None), upper)
    assert not contradicted(lower, upper_side([], ONE_STEP, KAPPA))


# --- the self-test ----------------------------------------------------------------------------------

TRIALS = 1500
CHOICES = 20


@pytest.fixture(scope="module")
def victims():
    """A small network, twenty digits that everybody knows, and which of them each client holds."""
    data = load("digits")
    inputs, labels = data.take(torch.arange(CHOICES))
    model = load_model("mlp:hidden=4", data.spec, 0)
    held = torch.randint(CHOICES, (TRIALS,), generator=torch.Generator().manual_seed(1))
    return model, inputs, labels, held


@pytest.mark.parametrize("mu", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_measured_success_on_gaussian_updates_stays_under_the_bound(victims, mu):
    """The attacker knows all candidates and takes the likeliest: blind, it would be right once in twenty."""
    model, inputs, labels, held = victims
    defense, bare = DPSGD(norm=0.05, sigma=1 / mu), DPSGD(norm=0.05, sigma=0)
    noisy = defense.wrap(client_step(ONE_STEP))(
        model, Batch(inputs[held][:, None], labels[held][:, None]), range(TRIALS)
    )
    clean = bare.wrap(client_step(ONE_STEP))(model, Batch(inputs[:, None], labels[:, None]), range(CHOICES))
    seen, known = (torch.cat([t.flatten(1) for t in u.tensors.values()], 1).double() for u in (noisy, clean))
    assert torch.allclose(known.norm(dim=1), torch.tensor(0.05).double(), rtol=1e-4)  # all are clipped: the worst case
    right = int((torch.cdist(seen, known).argmin(1) == held).sum())
    bound = reconstruction_bound(defense.mu(), 1 / CHOICES)
    assert at_least(right, TRIALS, 0.999) <= bound
    if mu >= 1:
        assert right / TRIALS > 1.3 / CHOICES  # and the attack does read something


@pytest.mark.parametrize("mu", [0.25, 0.5, 1.0, 2.0])
def test_the_optimal_attack_on_two_opposite_gradients_reaches_the_bound(mu):
    """+1 or -1, noise 1 / mu: the sign is right with Phi(mu), which is the bound at a blind success of one half."""
    source = torch.Generator().manual_seed(0)
    truth = torch.randint(2, (200_000,), generator=source) * 2.0 - 1
    seen = truth + torch.randn(len(truth), generator=source) / mu
    right = ((seen > 0) == (truth > 0)).double().mean().item()
    assert right == pytest.approx(reconstruction_bound(mu, 0.5), abs=0.004)


# --- kappa: how often a guess succeeds that never saw an update ------------------------------------

TABLE = DataSpec("table", (4,), 2, "tabular")


def rows(counts) -> Batch:
    """So many samples of each corner: the corner's number in binary, labelled by its parity."""
    corners = [c for c, count in enumerate(counts) for _ in range(count)]
    corners = [corners[i] for i in torch.randperm(len(corners), generator=torch.Generator().manual_seed(0)).tolist()]
    inputs = torch.tensor([[float(c >> bit & 1) for bit in range(4)] for c in corners])
    return Batch(inputs[None], torch.tensor(corners)[None] % 2)


def test_the_commonest_sample_is_the_best_guess():
    found = blind_success(TABLE, rows([50, 30, 20]), rows([60, 25, 15]), 1)
    assert (found.recovered, found.records, found.criterion) == (60, 100, "mse<=0.001")
    assert found.high == pytest.approx(at_most(60, 100))


def test_a_batch_may_guess_as_often_as_it_has_records():
    public, private = rows([50, 30, 20]), rows([60, 25, 15])
    assert blind_success(TABLE, public, private, 2).recovered == 85
    assert blind_success(TABLE, public, private, 3).recovered == 100


def test_who_knows_the_label_guesses_once_per_label():
    public, private = rows([50, 30, 20]), rows([60, 25, 15])
    assert blind_success(TABLE, public, private, 1, by_label=True).recovered == 85


def test_guesses_are_chosen_on_public_data_alone():
    found = blind_success(TABLE, rows([90, 10]), rows([10, 90]), 1)
    assert found.recovered == 10


def test_continuous_samples_are_not_guessed_and_that_has_a_limit():
    source = torch.Generator().manual_seed(0)
    public, private = (Batch(torch.rand(1, n, 4, generator=source), torch.zeros(1, n).long()) for n in (200, 300))
    found = blind_success(TABLE, public, private, 1)
    assert found.recovered <= 2
    assert 0 < found.high < 0.03


@pytest.mark.parametrize(("public", "private"), [(None, rows([1])), (rows([1]), None)])
def test_without_samples_nothing_is_claimed(public, private):
    assert blind_success(TABLE, public, private, 1) is None
