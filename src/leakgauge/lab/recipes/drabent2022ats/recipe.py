"""Drabent et al., "[Re] Replication study of Privacy-preserving Collaborative Learning", ReScience C 2022.

Automatic transformation search (Gao et al. 2021), replicated: what policies hide from an attacker, also from one who
knows them, on other data and early in training; what they cost; and whether their score predicts what leaks.
"""

from __future__ import annotations

from leakgauge.lab.recipes.drabent2022ats._accuracy import FIGURE_4, TABLE_ACCURACY
from leakgauge.lab.recipes.drabent2022ats._attacks import TABLE_2, TABLE_3
from leakgauge.lab.recipes.drabent2022ats._correlation import FIGURE_2
from leakgauge.lab.recipes.drabent2022ats._during import FIGURE_1, FIGURE_5
from leakgauge.lab.recipes.drabent2022ats._elsewhere import TABLE_5, TABLE_6, TABLE_CIFAR10, TABLE_EARLY
from leakgauge.lab.recipes.drabent2022ats._pictures import TABLE_PICTURES
from leakgauge.lab.recipes.drabent2022ats._policies import TABLE_1, TABLE_4, TABLE_DISTRIBUTION
from leakgauge.lab.recipes.drabent2022ats._single import FIGURE_6
from leakgauge.lab.reproduce.recipe import Recipe

RECIPE = Recipe(
    name="drabent2022ats",
    summary="Transformation policies (ATS): what they keep from who knows them, what they cost, and their score",
    paper="Drabent et al. 2022, [Re] Replication study of Privacy-preserving Collaborative Learning, "
    "ReScience C; Gao et al. 2021, CVPR",
    note="Reported figures are the replication's, and tables, figures, claims and experiments have its numbers; tables "
    "with a name in place of a number are ours. Cells with fewer than ten victims, or a training of fewer than a "
    "hundred rounds, are a quick look with a much shorter attack (60 steps of Adam, 6 of L-BFGS), which shows that "
    "everything is in place and measures nothing. How *undone "
    "afterwards* chooses among the ways was changed once after seeing scores, on six pictures of CIFAR-10 (least left "
    "over, then the likeliest way); the pictures of CIFAR-100 had no part in that.",
    tables=(
        TABLE_1,
        TABLE_2,
        TABLE_3,
        TABLE_4,
        TABLE_5,
        TABLE_6,
        TABLE_ACCURACY,
        FIGURE_1,
        FIGURE_2,
        FIGURE_4,
        FIGURE_5,
        FIGURE_6,
        TABLE_DISTRIBUTION,
        TABLE_PICTURES,
        TABLE_CIFAR10,
        TABLE_EARLY,
    ),
)
