"""A generator on disk: safetensors, with what it is and what it was made from as JSON in the header.

The tensors are weights and fingerprints of the training samples; the header has a hash over all of them, so that a file
that was cut off or changed by hand is refused. Nothing in such a file can run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from leakgauge.errors import BadInput, Unreadable
from leakgauge.generators.architecture import WIDTH_STEP, Architecture, Decoder
from leakgauge.generators.generator import Generator
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.tensors import read_safetensors

FORMAT = "leakgauge-generator-1"
_SEEN = "seen"
_DO = "write it with: leakgauge train generator"
_LARGEST = 4096  # of any number in an architecture: a damaged header must not ask for all memory


@dataclass(frozen=True)
class Origin:
    """What a generator was made from."""

    data: str  # as on the command line
    split: str  # "train" is the public part
    samples: int
    steps: int
    seed: int
    leakgauge: str  # version that made it


def save_generator(path: Path, decoder: Decoder, origin: Origin, seen: Tensor) -> str:
    """Write the file whole or not at all; gives its hash."""
    tensors = {f"net.{n}": t.detach().cpu().contiguous() for n, t in decoder.state_dict().items()} | {_SEEN: seen}
    about = {"format": FORMAT, "architecture": vars(decoder.plan), "origin": vars(origin)}
    digest = _hash(about, tensors)
    make_folder(path.parent)
    write_whole(path, save(tensors, {"generator": json.dumps(about), "sha256": digest}))
    return digest


def read_generator(path: str) -> Generator:
    """The generator in the file; anything that is not one is refused in one line."""
    what = f"generator {path!r}"
    if not Path(path).is_file():
        allowed = "an existing file, 'public' or 'dcgan-faces'"
        raise BadInput(what, allowed=allowed, got="no such file", do="check the path")
    try:
        tensors, metadata = read_safetensors(Path(path))
        about = json.loads(metadata["generator"])
        if about["format"] != FORMAT:
            raise BadInput(what, allowed=f"of the format {FORMAT}", got=repr(about["format"]), do=_DO)
        if metadata["sha256"] != _hash(about, tensors):
            raise BadInput(what, allowed="as it was written", got="other contents than its hash says", do=_DO)
        plan, origin = _architecture(about["architecture"]), Origin(**about["origin"])
    except BadInput:
        raise
    except (Unreadable, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        got = "another file, or a damaged one"
        raise BadInput(what, allowed="a generator that `train generator` wrote", got=got, do=_DO) from error
    weights = {n.removeprefix("net."): t for n, t in tensors.items() if n.startswith("net.")}
    decoder = _with_weights(plan, weights, what)
    words = f"{origin.samples} samples of the {origin.split} split of {origin.data}"
    return Generator(decoder, plan.latent, plan.shape, plan.classes, words, tensors.get(_SEEN))


def _architecture(plain: Mapping[str, Any]) -> Architecture:
    plan = Architecture(**{**plain, "shape": tuple(plain["shape"])})
    numbers = (*plan.shape, plan.classes, plan.latent, plan.width)
    known = len(plan.shape) == 3 and all(type(n) is int and 1 <= n <= _LARGEST for n in numbers)
    if not known or plan.width % WIDTH_STEP:
        raise ValueError("no such architecture")
    return plan


def _with_weights(plan: Architecture, weights: Mapping[str, Tensor], what: str) -> Decoder:
    with torch.device("meta"):  # no memory and no random draws before the shapes are known to fit
        decoder = Decoder(plan)
    wanted = {n: (t.shape, torch.float32) for n, t in decoder.state_dict().items()}
    sound = {n: (t.shape, t.dtype) for n, t in weights.items()} == wanted
    if not (sound and all(bool(torch.isfinite(t).all()) for t in weights.values())):
        raise BadInput(what, allowed="whole", got="weights that do not fit its architecture", do=_DO)
    decoder.load_state_dict(dict(weights), assign=True)
    return decoder.eval().requires_grad_(False)


def _hash(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
