"""From samples to figures: quartiles of times, intervals over seeds, nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from leakgauge.lab.reproduce.figures import FIGURES, compute_figure
from leakgauge.lab.reproduce.statistics import STATISTICS, heading, written


def test_a_time_has_its_median_and_quartiles():
    found = compute_figure("round_ms", {"round_ms": (1.0, 2.0, 3.0, 4.0, 100.0)})
    assert (found.value, found.low, found.high) == (3, 2, 4)


def test_what_is_drawn_with_each_seed_has_students_interval():
    found = compute_figure("accuracy", {"accuracy": (0.8, 0.9)})
    assert found.value == pytest.approx(0.85)
    assert found.high - found.value == pytest.approx(12.706 * 0.05, rel=1e-3)
    assert compute_figure("accuracy", {"accuracy": (0.8,)}).low is None


def test_a_correlation_is_of_pairs_with_fishers_interval():
    x, y = np.random.default_rng(0).standard_normal((2, 50))
    pairs = tuple(np.stack([x, y + x], 1).flatten())
    found = compute_figure("pearson", {"pearson": pairs})
    known = pearsonr(x, y + x)
    assert found.value == pytest.approx(known.statistic)
    assert (found.low, found.high) == pytest.approx(tuple(known.confidence_interval()))
    ranks = compute_figure("spearman", {"spearman": pairs})
    assert ranks.value == pytest.approx(spearmanr(x, y + x).statistic)
    assert ranks.low < ranks.value < ranks.high


def test_a_correlation_of_few_or_equal_values_has_no_interval():
    assert compute_figure("pearson", {"pearson": (1.0, 2.0, 2.0, 4.0, 3.0, 6.0, 4.0, 8.0)}).low is None
    assert compute_figure("pearson", {"pearson": (1.0, 2.0, 1.0, 3.0)}).value is None


def test_what_is_computed_has_no_interval():
    found = compute_figure("epsilon", {"epsilon": (0.5, 0.5)})
    assert (found.value, found.low) == (0.5, None)


def test_a_figure_that_was_not_measured_is_none():
    assert compute_figure("epsilon", {"accuracy": (0.8,)}).value is None


def test_no_figure_has_the_name_of_a_statistic():
    assert not FIGURES.keys() & STATISTICS.keys()
    assert heading("slower") == FIGURES["slower"].heading
    assert written("bytes_up", 12345.0) == "12,345"
    assert written("epsilon", None) == "–"


def test_keys_that_were_tried_on_one_training_count_as_one():
    fives = compute_figure("accuracy_first_lock", {"accuracy_first_lock": (0.0, 0.2, 0.4, 0.6, 0.8, *[0.8] * 5)})
    assert fives == compute_figure("accuracy", {"accuracy": (0.4, 0.8)})


def test_what_chance_gives_is_the_middle_of_many_repetitions():
    found = compute_figure("between_classes_by_chance", {"between_classes_by_chance": tuple(range(101))})
    assert (found.value, found.low, found.high) == (50, 2.5, 97.5)


def test_a_spread_is_the_standard_deviation_and_of_one_there_is_none():
    assert compute_figure("similar_spread_0", {"similar_spread_0": (1.0, 3.0)}).value == pytest.approx(2**0.5)
    assert compute_figure("similar_spread_0", {"similar_spread_0": (1.0,)}).value is None
