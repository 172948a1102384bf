"""Ren, FedBoosting: chapter 4 of "Gradient Leakage and Protection for Federated Learning", Swansea 2023.

Figure 4.2 as a table; Tables 4.1 and 4.3, text recognition, with words that we render.
"""

from __future__ import annotations

from leakgauge.lab.recipes.ren2022fedboosting._exchange import TABLE_EXCHANGE
from leakgauge.lab.recipes.ren2022fedboosting._mixing import TABLE_MIXING
from leakgauge.lab.recipes.ren2022fedboosting._reading import (
    TABLE_BATCHES,
    TABLE_ENCRYPTED,
    TABLE_GRID,
    TABLE_GRID_SMALL,
    TABLE_READING,
)
from leakgauge.lab.recipes.ren2022fedboosting._toy import TABLE_PUBLISHED, TABLE_TOY
from leakgauge.lab.reproduce.recipe import Recipe

RECIPE = Recipe(
    name="ren2022fedboosting",
    summary="Clients weighed by how their models do on each other's samples, beside the mean and a server with Adam",
    paper="Ren et al. 2022, FedBoosting; figures from chapter 4 of Ren's thesis, Swansea 2023",
    note="Table 4.1 is sized for a GPU (`--table 4.1 --device cuda`), the others for one core. Networks that read are "
    "trained once each (seed 0) but for the grids: the intervals are over words alone, and a difference of a few "
    "points between two of them may be the seed's. Mixing was measured with what is now `fusing=fixed`. In tables 4.1, "
    "4.1-small and 4.3 real words are stretched to the trained size, where the thesis's tables keep proportions.",
    tables=(
        TABLE_TOY,
        TABLE_PUBLISHED,
        TABLE_READING,
        TABLE_BATCHES,
        TABLE_GRID,
        TABLE_GRID_SMALL,
        TABLE_ENCRYPTED,
        TABLE_EXCHANGE,
        TABLE_MIXING,
    ),
)
