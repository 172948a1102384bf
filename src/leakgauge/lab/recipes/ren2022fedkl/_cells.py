"""What the tables of FedKL share: names, locks, and a cell with one attack on one configuration."""

from __future__ import annotations

from leakgauge.lab.reproduce.recipe import Run
from leakgauge.metrics.psnr import psnr_from_fedkl
from leakgauge.types import Client, Scenario

NAMES = {"mnist:size=32": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "photos64:size=256": "photographs"}
METRICS = ("psnr_aligned", "ssim_aligned")
PERCEPTUAL = ("lpips", "lpips-vgg")
TRAIN = Client(batchnorm="train")  # the statistics of the one image, as in the thesis
NONE, PLAIN_NORM = "none", "batchnorm-only"
ACTIVATIONS = ("identity", "sigmoid", "relu")
LOCKS = {act: f"key-lock:activation={act},first_lock=client" for act in ACTIVATIONS}
SERVERS_LOCKS = {act: f"key-lock:activation={act}" for act in ACTIVATIONS}  # as the text has it
GRNN = "grnn:scale=mixed,variation=squared"  # the loss of the recorded figures, not that of the text
MATCHING = "idlg:restarts=1"


def attacked(
    model: str,
    data: str,
    attack: str,
    defense: str,
    trials: int = 50,
    metrics: tuple[str, ...] = METRICS,
    way: str | None = None,
) -> Run:
    """One attack, one configuration; `way` is how the attacker uses that it knows it ("": the one way, None: plain)."""
    return Run(
        Scenario(
            model=model,
            data=data,
            local=TRAIN,
            attacks=(attack,),
            metrics=metrics,
            variants=variant(way),
            assume="" if way is None else f"{defense}@{way}" if way else defense,
            defenses=() if defense == NONE else (defense,),
            trials=trials,
        )
    )


def quality(thesis: tuple[float, float] | None = None) -> dict[str, float | None]:
    """The thesis' "PSNR" and SSIM, the true PSNR behind the former, and the aligned scores, which it does not have."""
    psnr, ssim = thesis or (None, None)
    true = None if psnr is None else round(psnr_from_fedkl(psnr), 2)
    return {
        "psnr_thesis": psnr,
        "psnr": true,
        "ssim": ssim,
        "psnr_aligned": None,
        "ssim_aligned": None,
        "psnr_aligned_above(20)": None,
    }


def variant(way: str | None) -> str:
    return "plain" if way is None else "adaptive"


CONVENTION = (
    "the thesis computes 10 log10(255^2 / RMSE), the root where the error belongs; the true PSNR is twice that minus "
    "48.13 dB. Raw scores are clamped to [0, 1]. Aligned ones fit one scale and one offset per image to the truth "
    "first: train-mode BatchNorm hides both for a single image."
)
TILED = f"{MATCHING},init=patterned-4"  # the start of an attacker behind a normalisation
SEARCH = "joint, not stretched"  # how an informed attacker searches for the lock
