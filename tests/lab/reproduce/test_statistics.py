"""From victims to figures: successes and failures by hand-counted cases."""

from __future__ import annotations

import pytest

from leakgauge.defenses.sensitivity import Sensitivity
from leakgauge.errors import BadInput
from leakgauge.lab.reproduce.statistics import STATISTICS, compute, heading, is_failed, written
from leakgauge.metrics.intervals import clopper_pearson


def test_success_is_the_attacks_own_objective_below_its_own_absolute_threshold(victim):
    victims = [victim(objective=9e-5), victim(objective=2e-4), victim(objective=None, flags=("diverged",))]
    found = compute("asr", victims)
    assert found.value == pytest.approx(1 / 3)
    assert (found.low, found.high) == clopper_pearson(1, 3)
    assert compute("asr", [victim(objective=2e-4, spec="cpl:absolute_threshold=0.001")]).value == 1


def test_relative_success_is_what_the_attack_itself_says_and_takes_a_step(victim):
    victims = [victim(spec="cpl", solved=solved) for solved in (True, False, None)]
    assert compute("asr", victims).value == pytest.approx(1 / 3)
    assert compute("asr", [victim(solved=False)]).value == 1, "the absolute threshold keeps its old meaning"


def test_attacks_without_a_threshold_never_succeed_in_this_sense(victim):
    assert compute("asr", [victim(spec="inverting-gradients", objective=0.0)]).value == 0


def test_fewer_allowed_steps_are_read_off_the_same_run(victim):
    victims = [victim(steps=10), victim(steps=40), victim(steps=5, objective=1.0)]
    assert [compute(f"asr_within({most})", victims).value for most in (9, 10, 40)] == pytest.approx([0, 1 / 3, 2 / 3])


def test_iterations_are_those_of_successes(victim):
    victims = [victim(steps=10), victim(steps=20), victim(steps=300, objective=1.0)]
    values = {name: compute(f"iterations{name}", victims).value for name in ("", "_min", "_max", "_std", "_var")}
    assert values == {"": 15, "_min": 10, "_max": 20, "_std": 5, "_var": 25}
    assert compute("steps_mean", victims).value == 110
    assert compute("steps_median", victims).value == 20


def test_failures_stay_in_every_figure_but_those_of_successes(victim):
    bad = {"mse": 0.5, "psnr": 3.0, "ssim": 0.1}
    victims = [victim(), victim(records=(bad,), objective=1.0)]
    assert compute("ssim", victims).value == pytest.approx(0.5)
    assert compute("ssim_of_successes", victims).value == pytest.approx(0.9)
    assert compute("mse_of_successes", victims).value == pytest.approx(0.01)
    assert compute("psnr", victims).value == pytest.approx(11.5)
    assert compute("psnr_std", victims).value == pytest.approx(17 / 2**0.5)


def test_the_median_and_the_share_over_a_level_count_failures_as_nothing(victim):
    scored = [victim(records=({"mse": 0.1, "psnr": p, "ssim": 0.5},)) for p in (5.0, 20.0, 30.0, 31.0)]
    lost = victim(records=(), scores={}, error="out of memory")
    assert compute("psnr_median", scored).value == 25
    assert compute("psnr_median", [*scored, lost]).value == 20
    assert compute("psnr_above(20)", [*scored, lost]).value == pytest.approx(2 / 5)
    assert compute("psnr_above(20)", scored).low == clopper_pearson(2, 4)[0]
    assert heading("psnr_above(20)") == "share over 20 dB"


def test_the_most_exposed_record_and_quantiles_are_over_records_and_lost_trials_count_as_nothing(victim):
    batch = victim(records=({"psnr": 5.0, "ssim": 0.2}, {"psnr": 31.0, "ssim": 0.9}))
    lost = victim(records=(), scores={}, error="out of memory")
    victims = [batch, victim(records=({"psnr": 20.0, "ssim": 0.95},))]
    assert compute("psnr_largest", victims).value == 31
    assert compute("ssim_largest", victims).value == 0.95
    assert compute("psnr_largest", victims).low is None, "an extreme has no honest interval"
    assert [compute(f"psnr_quantile({at})", victims).value for at in (0, 50, 100)] == [5, 20, 31]
    assert compute("psnr_quantile(0)", [*victims, lost]).value == 0
    assert compute("psnr_quantile(50)", victims).low == 5


def test_scores_beside_a_transformation_are_read_where_there_are_any(victim):
    seen = {"mse": 0.1, "psnr": 10.0, "ssim": 0.1, "psnr_trained_on": 28.0, "psnr_undone": 20.0}
    victims = [victim(records=(seen,)), victim(records=(seen | {"psnr_trained_on": 30.0},))]
    assert compute("psnr_trained_on", victims).value == 29
    assert compute("psnr_undone", victims).value == 20
    assert compute("psnr_trained_on_quantile(100)", victims).value == 30
    assert compute("psnr_undone_quantile(50)", [victim()]).value is None
    assert compute("psnr_trained_on", [victim()]).value is None


def test_the_worst_error_is_of_all_records_or_unknown(victim):
    victims = [victim(records=({"mse": 1e-15}, {"mse": 3e-14})), victim(records=({"mse": 0.0},))]
    assert compute("mse_worst", victims).value == 3e-14
    assert compute("mse_worst", [*victims, victim(records=())]).value is None


def test_the_most_exposed_record_of_a_table_has_the_least_error(victim):
    victims = [victim(records=({"mse": 1e-3}, {"mse": 3e-4})), victim(records=()), victim(records=({"mse": None},))]
    assert compute("mse_smallest", victims).value == 3e-4
    assert compute("mse_smallest", victims[1:]).value is None


def test_recognised_counts_records_by_ssim_or_a_tables_error(victim):
    batch = victim(records=({"mse": 0.2, "ssim": 0.6}, {"mse": 0.2, "ssim": 0.59}))
    assert compute("recognised", [batch]).value == 0.5
    table = victim(records=({"mse": 1e-3}, {"mse": 2e-3}))
    assert compute("recognised", [table]).value == 0.5
    assert compute("recognised", [victim(records=(), scores={}, error="out of memory")]).value == 0


def test_thesis_convention_halves_the_scale(victim):
    assert compute("psnr_thesis", [victim()]).value == pytest.approx((20 + 48.1308) / 2, abs=1e-3)


def test_what_the_thesis_calls_mse_is_a_root_of_pixels(victim):
    found = compute("rmse_thesis", [victim(records=({"mse": 0.01},)), victim(records=({"mse": 0.04},))])
    assert found.value == pytest.approx((25.5 + 51) / 2)
    assert compute("rmse_thesis", [victim(records=())]).value is None


def test_perceptual_distances_have_a_statistic_each(victim):
    found = [victim(records=({"mse": 0.0, "lpips": 0.25, "lpips-vgg": 0.5},))]
    assert (compute("lpips", found).value, compute("lpips_vgg", found).value) == (0.25, 0.5)


def test_label_accuracy_is_a_share_of_trials_or_a_mean_over_batches(victim):
    single = [victim(scores={"label_accuracy": v}) for v in (1.0, 0.0)]
    assert compute("label_accuracy", single).low == clopper_pearson(1, 2)[0]
    assert compute("label_accuracy", [victim(scores={"label_accuracy": 0.25}), *single]).value == pytest.approx(
        1.25 / 3
    )


def test_a_trial_fails_by_raising_or_diverging(victim):
    assert is_failed(victim(flags=("diverged",)))
    assert is_failed(victim(error="out of memory"))
    assert not is_failed(victim(flags=("labels-given",)))


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_says_what_it_is_and_survives_no_success(name, victim):
    spec = f"{name}(30)" if STATISTICS[name].takes_argument else name
    assert "{" not in heading(spec)
    found = compute(spec, [victim(objective=1.0), victim(objective=1.0)])
    assert written(spec, found.value)


@pytest.mark.parametrize("spec", ["assr", "asr(3)", "asr_within", "asr_within(x)"])
def test_mistakes_in_a_spec_are_refused(spec):
    with pytest.raises(BadInput):
        heading(spec)


def test_named_slices_are_counted_among_those_that_were_noised(victim):
    """Seed 0 noises three of ten; the attack names two of them and one other."""
    defense = "sensitivity:gamma=0.3"
    true = Sensitivity(gamma=0.3).chosen([0])[0].tolist()
    other = next(n for n in range(10) if n not in true)
    note = f"slices taken as noised: {true[0]} {true[1]} {other}"
    assert compute("slices_named", [victim(defense=defense, note=note)]).value == pytest.approx(2 / 3)
    assert compute("slices_named", [victim(defense=defense)]).value == 0


def test_the_share_over_a_level_of_ssim_counts_lost_trials(victim):
    victims = [victim(records=({"ssim": s},)) for s in (0.1, 0.2, 0.3)] + [victim(records=(), error="out of memory")]
    assert compute("ssim_above(0.2)", victims).value == pytest.approx(1 / 4)


def test_the_standard_deviation_of_label_accuracy_is_the_thesis_own(victim):
    """Nine updates right and one of four labels wrong: printed as 97.50 and 0.0750."""
    victims = [victim(scores={"label_accuracy": a}) for a in [1.0] * 9 + [0.75]]
    assert compute("label_accuracy_std", victims).value == pytest.approx(0.075)
    assert compute("label_accuracy_std", victims[:1]).value is None


def test_objectives_are_averaged_only_if_all_are_there(victim):
    assert compute("objective", [victim(objective=1.0), victim(objective=3.0)]).value == 2
    assert compute("objective", [victim(objective=1.0), victim(objective=None)]).value is None


def test_a_record_that_is_not_claimed_is_not_exact(victim):
    found = [victim(records=({"mse": 1e-9}, {"mse": None}, {"mse": 0.1}))]
    assert compute("exact_records", found).value == 1
