"""Any generator a user may name: `public`, made on the spot from public samples, `dcgan-faces`, or a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import Tensor

from leakgauge.errors import NotApplicable
from leakgauge.generators import dcgan
from leakgauge.generators.fingerprints import fingerprints
from leakgauge.generators.generator import Generator, fitted
from leakgauge.generators.principal import principal_generator
from leakgauge.generators.saving import read_generator
from leakgauge.types import Attack, Batch, DataSpec

PUBLIC = "public"


def load_generator(spec: str, data: DataSpec, public: Batch | None = None) -> Generator:
    """The named generator for this kind of data; refused in one line if it makes something else."""
    if spec == PUBLIC:
        if public is None:
            raise NotApplicable(
                "generator 'public' is made from public samples, and there are none; "
                f"give a file: leakgauge train generator --data {data.name}"
            )
        return principal_generator(public, data)
    return fitted(_read(spec), data, f"generator {spec!r}")


def named_by(attack: Attack) -> str | None:
    """The generator that an attack's settings name; None for attacks that draw from none."""
    spec = getattr(attack, "generator", None)
    return spec if attack.decoy and isinstance(spec, str) else None


def generator_content(spec: str) -> str:
    """A hash of the file behind the name, so that a new file makes new results; empty where there is no file."""
    path = Path(spec)
    return hashlib.sha256(path.read_bytes()).hexdigest() if spec != PUBLIC and path.is_file() else ""


def doubts_about(spec: str, victims: Tensor) -> tuple[str, ...]:
    """Flags that this generator raises for these private samples (M, *shape)."""
    if spec == PUBLIC:
        return ()  # the threat model keeps public samples and victims apart
    seen = _read(spec).seen
    if seen is None:
        return ("generator-data-unknown",)
    known = set(seen.tolist())
    return ("generator-saw-victims",) if any(f in known for f in fingerprints(victims).tolist()) else ()


def _read(spec: str) -> Generator:
    return dcgan.read_faces() if spec == dcgan.NAME else read_generator(spec)
