"""Ren, "Gradient Leakage and Protection for Federated Learning", thesis, Swansea 2023, chapter 5 (FedKL).

Every locked network is measured beside the same one with a plain BatchNorm, and every attack beside an informed one.
"""

from __future__ import annotations

from leakgauge.lab.recipes.ren2022fedkl._accuracy import TABLE_1, TABLE_1_CONSTANT, TABLE_3, TABLE_3_OWN
from leakgauge.lab.recipes.ren2022fedkl._leaks import TABLE_4, TABLE_4_GRNN, TABLE_5, TABLE_6, TABLE_7, TABLE_7_OWN
from leakgauge.lab.reproduce.recipe import Recipe

RECIPE = Recipe(
    name="ren2022fedkl",
    summary="FedKL: accuracy with and without the key, and what leaks with the lock and with BatchNorm alone",
    paper="Ren 2023, Gradient Leakage and Protection for Federated Learning, thesis, Swansea, chapter 5",
    note="The question behind all tables: does the lock add anything to BatchNorm? Read aligned figures of *BatchNorm "
    "only* beside those of *searched for*. Tables have the thesis' numbers; those whose number goes on with words are "
    "ours, beside the thesis' table of that number. Locks of 5.4, 5.4-grnn, 5.5 and of tables named own-locks are "
    "drawn by each client (`first_lock=client`), those of 5.1, 5.3, 5.7 and of the text in 5.6 are made by the server.",
    tables=(
        TABLE_1,
        TABLE_1_CONSTANT,
        TABLE_3,
        TABLE_3_OWN,
        TABLE_4,
        TABLE_4_GRNN,
        TABLE_5,
        TABLE_6,
        TABLE_7,
        TABLE_7_OWN,
    ),
)
