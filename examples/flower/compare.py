"""How near are the recovered pictures to those the clients hold? Only the owner of the data can say.

python compare.py OUT ATTACK          for example: python compare.py out linear

Flower's server does not know which client is which, so recovered and private pictures are matched by least error.
`APP=cifar_app` takes the other app's pictures.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))

from leakgauge.metrics.scoring import score
from leakgauge.types import Batch, DataSpec, Reconstruction

APP = os.environ.get("APP", "digits_app")


def main(out: str, attack: str) -> None:
    pictures_of = import_module(f"{APP}.task").pictures_of
    for path in sorted(Path(out).glob(f"group*-{attack}.safetensors")):
        recovered = load_file(path)["inputs"].flatten(0, 1)  # (clients, C, H, W)
        pairs = [pictures_of(client, 1) for client in range(len(recovered))]
        truth = Batch(torch.cat([p for p, _ in pairs])[None], torch.cat([y for _, y in pairs])[None])
        nothing = torch.zeros(1)
        claim = Reconstruction(recovered[None], None, nothing, nothing, nothing)
        scores = score(truth, claim, DataSpec(APP, tuple(recovered.shape[1:]), 10, "image")).records
        psnr, ssim = scores["psnr"][0], scores["ssim"][0]
        right = int((ssim >= 0.6).sum())
        sys.stdout.write(
            f"{path.name}: psnr_mean_per_image {psnr.mean():.2f} dB, ssim_mean_per_image {ssim.mean():.3f} "
            f"({ssim.min():.3f} to {ssim.max():.3f}), {right} of {len(ssim)} with ssim >= 0.6\n"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
