"""Wang et al., "Protect Privacy from Gradient Leakage Attack in Federated Learning", INFOCOM 2022.

Tables II and III; the paper's federation and its Figure 2; the attacker who knows the slices; and how much
time every defense of ours takes.
"""

from __future__ import annotations

from leakgauge.lab.recipes.wang2022protect._attacks_and_costs import TABLE_2A, TABLE_2B, TABLE_COST
from leakgauge.lab.recipes.wang2022protect._federation import TABLE_FIGURE_2, TABLE_TRAINING
from leakgauge.lab.recipes.wang2022protect._set_up import trained
from leakgauge.lab.recipes.wang2022protect._studies import TABLE_COMPENSATION, TABLE_Q, TABLE_SLICES
from leakgauge.lab.recipes.wang2022protect._table_3 import TABLE_3A, TABLE_3B, TABLE_3C, TABLE_3D, TABLE_3E
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Table

_ROUNDS = 22  # the first prepares everything
_DEFENSES = (
    "gaussian:std=0.1",
    "laplace:scale=0.1",
    "clip:norm=1",
    "dp-sgd",
    "fed-cdp",
    "fed-sdp",
    "prune:share=0.8",
    "dgc:share=0.99",
    "sign",
    "quantize:bits=8",
    "low-rank",
    "random-mask",
    "sketch",
    "dropout",
    "mixup",
    "local-steps:steps=5",
    "batchnorm-only",
    "ats",
    "precode",
    "secure-aggregation:clients=10",
    "sensitivity:gamma=0.2,recut=true,root=10,probes=1",
    "sensitivity:gamma=0.2,recut=true",
    "sensitivity:gamma=0.2",
    "soteria",
)

TABLE_TIME = Table(
    "time",
    "round time (ART) and bytes of every defense",
    "MNIST, 10 of 100 clients in a round, one gradient each; 21 rounds after a first that sets everything up. The "
    "median round with its quartiles, and the median over rounds of its ratio to the undefended round right beside it.",
    "The paper reports +8 to +9 % for its defense and +13 to +16 % for Soteria, with the risk measured once, and "
    "clients that train for two epochs. Here a client takes one gradient of a few samples on a small network, so what "
    "a defense adds weighs most: read the ratios as upper ends. Clients of a round are simulated side by side in one "
    "process: a real client pays its own part of it only. Bytes are those of one client in one round. The rows of "
    "`sensitivity` with recut=true cut their slices anew in each round, by 10 root samples and one probe or by 50 and "
    "four; the paper, and the row without, cut once. Table 2-training has round times in the paper's federation. "
    "`key-lock` trains with locks that "
    "clients keep: its rounds stand in table 5.1 of ren2022fedkl.",
    tuple(
        Cell(
            defense,
            "MNIST",
            trained("mnist", defense, rounds=_ROUNDS),
            {"round_ms": None, "slower": None, "bytes_up": None},
            quick=3 if defense in ("gaussian:std=0.1", "sign") else 0,
        )
        for defense in _DEFENSES
    ),
)

RECIPE = Recipe(
    name="wang2022protect",
    summary="Noise on a few slices of equal risk, taken out again by the server: leak, cost, and who knows the slices",
    paper="Wang et al. 2022, Protect Privacy from Gradient Leakage Attack in Federated Learning, INFOCOM",
    note="The paper's variance of the noise is 0.01 (std 0.1); its released code has std 0.0005 on half of ten "
    "slices. Tables are numbered as the paper's: 2A is II[A], 3E is III[E]; the others are ours. Attacks were measured "
    "before `keep` had the value outside: the variant that takes the noise out first kept what lies above the band. "
    "Cells of attacks are sized for a GPU (`--table slices --device cuda`), cells of training, the "
    "compensation and the root sets for two cores. Round times depend on what else the machine does; both federations "
    "of a pair run in turn, round by round.",
    tables=(
        TABLE_2A,
        TABLE_2B,
        TABLE_TRAINING,
        TABLE_FIGURE_2,
        TABLE_3A,
        TABLE_3B,
        TABLE_3C,
        TABLE_3D,
        TABLE_3E,
        TABLE_SLICES,
        TABLE_COMPENSATION,
        TABLE_TIME,
        TABLE_COST,
        TABLE_Q,
    ),
)
