"""Wei et al., "A Framework for Evaluating Gradient Leakage Attacks in Federated Learning", 2020 (CPL): its nine tables.

Numbers are the paper's; of its figures those that compare something stand behind the tables. Its pages as they map to
ours: `docs/papers/wei2020.md`.
"""

from __future__ import annotations

from leakgauge.lab.recipes.wei2020cpl._comparison import TABLE_2, TABLE_3
from leakgauge.lab.recipes.wei2020cpl._local_training import TABLE_6A, TABLE_6B, TABLE_9
from leakgauge.lab.recipes.wei2020cpl._messages import TABLE_7A, TABLE_7B, TABLE_8
from leakgauge.lab.recipes.wei2020cpl._networks import FIGURE_4, FIGURE_6, FIGURE_8
from leakgauge.lab.recipes.wei2020cpl._starting import TABLE_1, TABLE_4, TABLE_5
from leakgauge.lab.reproduce.recipe import Recipe

RECIPE = Recipe(
    name="wei2020cpl",
    summary="What helps and what hinders a client privacy leakage attack: starts, batches, noise, pruning, local steps",
    paper="Wei et al. 2020, A Framework for Evaluating Client Privacy Leakages in Federated Learning, ESORICS",
    note="Tables carry the paper's numbers. Networks are freshly initialised, as in the released code, unless a row "
    "says trained. The paper attacks 100 images with 10 seeds each. Our LFW "
    "holds 50 people (1,000 pictures, a quarter of them victims), the paper's 106. Success is the absolute threshold "
    "of 1e-4 "
    "on the squared distance where a row says nothing else; every cell measured before rows of relative stopping "
    "existed "
    "was measured so, and a start below that threshold counts as a success in 0 steps there. A sigmoid network with "
    "default weights, or a batch of a hundred, starts below it: rows of relative stopping are the ones to compare "
    "networks by.",
    tables=(
        TABLE_1,
        TABLE_2,
        TABLE_3,
        TABLE_4,
        TABLE_5,
        TABLE_6A,
        TABLE_6B,
        TABLE_7A,
        TABLE_7B,
        TABLE_8,
        TABLE_9,
        FIGURE_4,
        FIGURE_6,
        FIGURE_8,
    ),
)
