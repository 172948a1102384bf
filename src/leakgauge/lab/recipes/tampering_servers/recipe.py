"""What the gradient defenses of this version do against a server that tampers. No paper has this table."""

from __future__ import annotations

from leakgauge.lab.reproduce.recipe import Cell, Recipe, Run, Table
from leakgauge.types import Scenario

_DEFENSES = (
    "none",
    "gaussian:std=0.001",
    "gaussian:std=0.1",
    "gaussian:std=0.1,relative=true",
    "laplace:scale=0.01",
    "prune:share=0.9",
    "dgc:share=0.99",
    "dropout:p=0.5",
)
_LOUDER = ("gaussian:std=0.001", "gaussian:std=0.1", "laplace:scale=0.01")  # noise of a fixed size
_SERVERS = (  # (row, attack, model, data, threat model, trials, has a louder version)
    ("mkor", "mkor", "mlp:activation=relu", "malicious-parameters", True),
    ("imprint", "imprint", "lenet-dlg", "malicious-architecture", False),
    ("trap-weights", "trap-weights", "mlp:activation=relu,hidden=1000", "malicious-parameters", False),
    ("class-fishing", "class-fishing:steps=400", "lenet-dlg", "malicious-parameters", True),
    ("feature-fishing", "feature-fishing:steps=400", "lenet-dlg", "malicious-parameters", False),
)
_DATA, _BATCH, _TRIALS = "cifar100", 16, 4


def _cells() -> tuple[Cell, ...]:
    cells = []
    for row, attack, model, threat, has_louder in _SERVERS:
        for defense in _DEFENSES:
            scenario = Scenario(
                model=model,
                data=_DATA,
                batch_size=_BATCH,
                trials=_TRIALS,
                attacks=(attack,),
                threat_model=threat,
                defenses=() if defense == "none" else (defense,),
            )
            variants = ("plain", "adaptive") if has_louder and defense in _LOUDER else ("plain",)
            cells += [
                Cell(
                    row if variant == "plain" else f"{row}, louder",
                    defense,
                    Run(scenario),
                    {"recognised": None, "psnr_best": None, "psnr": None},
                    variant,
                    quick=1 if attack == row and defense in ("none", "prune:share=0.9") else 0,
                )
                for variant in variants
            ]
    return tuple(cells)


TABLE = Table(
    "1",
    "tampering servers against gradient defenses: CIFAR-100, batches of 16",
    "recognised is the share of records with an SSIM of 0.6 or more after the best matching; best is the mean over "
    "batches of the batch's best record. A record that was not found counts as mid-grey. The fishing servers fish for "
    "one record of sixteen, so 0.062 is all they can have.",
    "A louder server knows that there is noise of a fixed size and sends a model whose gradients are larger by 10,000; "
    "nothing in these defenses bounds the size of an update. Imprint modules are loud by themselves; trap weights are "
    "not, and noise of 0.001 already leaves nothing of them. Pruning leaves the largest entries exact. The search "
    "behind the fishing servers is cut at 400 steps here, too short to recognise anything (2,000 gave 24.8 and 25.4 dB "
    "on two batches of 64); their best record is often a grey picture that was not fished at all (16.8 dB), so these "
    "rows say little about protection.",
    _cells(),
)

RECIPE = Recipe(
    name="tampering_servers",
    summary="Servers that tamper with the model, against the gradient defenses of this version",
    paper="no paper: our own comparison of Wang et al. 2023, Fowl et al. 2022, Boenisch et al. 2023, Wen et al. 2022",
    note="Each server on a model that it can prepare, untrained, with real cross-entropy.",
    tables=(TABLE,),
)
