"""Ren et al., "GRNN", ACM TIST 2022, in the figures of Ren's thesis (Swansea 2023, chapter 3).

The thesis's LeNet is taken to be DLG's: on GRNN's released one, with max-pooling, the attack stays far below the
reported figures whatever the optimiser.
"""

from __future__ import annotations

from leakgauge.lab.recipes.ren2022grnn._batches import TABLE_6, TABLE_9, TABLE_11
from leakgauge.lab.recipes.ren2022grnn._identities import TABLE_15
from leakgauge.lab.recipes.ren2022grnn._iterations import FIGURE_3, FIGURE_4, FIGURE_6
from leakgauge.lab.recipes.ren2022grnn._loss import TABLE_12
from leakgauge.lab.recipes.ren2022grnn._quality import TABLE_4, TABLE_16
from leakgauge.lab.recipes.ren2022grnn._verdicts import judged
from leakgauge.lab.reproduce.recipe import Recipe

RECIPE = Recipe(
    name="ren2022grnn",
    summary="GRNN: picture quality, batches, resolution, labels, noise",
    paper="Ren, Deng and Xie 2022, GRNN: Generative Regression Neural Network, ACM TIST; figures by Ren 2023",
    note="8,000 steps of RMSprop (1,200 and, under noise, 600 with `--quick`). Outside Table 3.12 the loss is the sum "
    "of squares beside a mean of the Wasserstein distance, which weighs next to nothing, and squared variation "
    "(`grnn:scale=mixed,variation=squared`). Our LeNet is DLG's: with GRNN's released one, which has max-pooling, the "
    "attack stays far below the reported figures.",
    tables=tuple(
        judged(table)
        for table in (FIGURE_3, TABLE_4, FIGURE_4, TABLE_6, TABLE_9, TABLE_11, TABLE_12, TABLE_15, TABLE_16, FIGURE_6)
    ),
)
