"""Drabent et al., "[Re] Replication study of Privacy-preserving Collaborative Learning", ReScience C 2022.

Automatic transformation search (Gao et al. 2021), replicated: what policies keep from an attacker, from one who knows
them, on other data and early in training; what they cost; whether the score that finds them foresees what leaks.
"""

from __future__ import annotations

from leakgauge.recipes._recipe import Recipe
from leakgauge.recipes.drabent2022ats._accuracy import TABLE_ACCURACY
from leakgauge.recipes.drabent2022ats._correlation import TABLE_CORRELATION
from leakgauge.recipes.drabent2022ats._elsewhere import TABLE_EARLY, TABLE_TRANSFER
from leakgauge.recipes.drabent2022ats._leaks import (
    TABLE_ATTACKS,
    TABLE_BASELINES,
    TABLE_DISTRIBUTION,
    TABLE_POLICIES,
)

RECIPE = Recipe(
    name="drabent2022ats",
    summary="Transformation policies (ATS): what they keep from who knows them, what they cost, and their score",
    paper="Drabent et al. 2022, [Re] Replication study of Privacy-preserving Collaborative Learning, "
    "ReScience C; Gao et al. 2021, CVPR",
    note="Reported figures are the replication's. Which of its claims has which number is only partly known to us. "
    "Cells with fewer than ten victims, or a training of fewer than a hundred rounds, are a quick look with a much "
    "shorter attack (60 steps of Adam, 6 of L-BFGS), which shows that everything is in place and measures nothing. "
    "How *undone afterwards* chooses among the ways was changed once after seeing scores, on six pictures of CIFAR-10 "
    "(least left over, then the likeliest way); the pictures of CIFAR-100 had no part in that.",
    tables=(
        TABLE_POLICIES, TABLE_ATTACKS, TABLE_BASELINES, TABLE_DISTRIBUTION, TABLE_TRANSFER, TABLE_EARLY,
        TABLE_CORRELATION, TABLE_ACCURACY,
    ),
)  # fmt: skip
