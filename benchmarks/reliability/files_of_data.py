"""Data sets in their published formats, folders of pictures, arrays of the user."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import bombs
import numpy as np
from PIL import Image
from reader import CANARY, Reader, Runs, Traps, npz
from scipy.io import savemat

from leakgauge.data.loading import load, load_whole
from leakgauge.lab.words.iiit5k import real_words

Image.init()  # Pillow loads its formats when it meets the first file that it does not know


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def make_mnist(folder: Path, ending: str = "") -> None:
    (folder / "mnist").mkdir()
    pressed = (lambda b: gzip.compress(b, mtime=0)) if ending else bytes
    (folder / f"mnist/t10k-images-idx3-ubyte{ending}").write_bytes(pressed(idx(np.zeros((3, 28, 28), np.uint8))))
    (folder / f"mnist/t10k-labels-idx1-ubyte{ending}").write_bytes(pressed(idx(np.arange(3, dtype=np.uint8))))


def idx_traps(_: Path) -> Traps:
    return idx(np.zeros((1, 1, 1), np.uint8))[:4] + b"\xff" * 12 + b"x", bytes((0, 0, 8, 3)) + b"\0" * 12


def gzip_traps(_: Path) -> Traps:
    return bombs.gzip_of(idx(np.zeros(1, np.uint8))[:4]), gzip.compress(b"", mtime=0)


def make_cifar(folder: Path, hundred: bool = False) -> None:
    inner = folder / ("cifar-100-python" if hundred else "cifar-10-batches-py")
    inner.mkdir()
    content = {b"data": np.zeros((3, 3072), np.uint8), (b"fine_labels" if hundred else b"labels"): [0, 1, 2]}
    (inner / ("test" if hundred else "test_batch")).write_bytes(pickle.dumps(content, protocol=2))


def pickle_traps(folder: Path) -> Traps:
    array = np.zeros((3, 3072), np.uint8)
    array_of = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
    huge = b"\x80\x02" + array_of + b"(\x8a\x05\x00\x00\x00\x00\x08tU\x01btR."  # of 32 GB
    return (
        pickle.dumps(Runs(folder / CANARY)),
        pickle.dumps({b"data": array, b"labels": [0, 1, 2**70]}, protocol=2),
        pickle.dumps({"\ud800": 1}, protocol=2),
        pickle.dumps({b"data": array, b"labels": [0, 1, -1]}, protocol=2),
        huge,
    )


def make_adult(folder: Path) -> None:
    (folder / "adult").mkdir()
    row = "39, State-gov, 77516, Bachelors, 13, Never, Clerk, None, White, Male, 2174, 0, 40, Home, <=50K\n"
    (folder / "adult/adult.data").write_text(row + row.replace("39", "50").replace("<=50K", ">50K"))
    (folder / "adult/adult.test").write_text("|1x3 Cross validator\n" + row.replace("<=50K", "<=50K."))


def adult_traps(_: Path) -> Traps:
    row = "39, State-gov, 77516, Bachelors, 13, Never, Clerk, None, White, Male, 2174, 0, 40, Home, <=50K.\n"
    long = row * 5000 + row.replace("Clerk", "C" * 500_000)  # as fixed-width text: 130 GB
    return (long.encode(), row.replace("39", "nan").encode(), row.replace("39", "inf").encode())


PICTURES = ("png", "jpeg", "bmp", "gif", "webp", "tiff", "ppm")


def picture(form: str, size: tuple[int, int] = (12, 10)) -> bytes:
    out = io.BytesIO()
    values = np.arange(size[0] * size[1] * 3, dtype=np.uint32).reshape(size[1], size[0], 3) % 251
    Image.fromarray(values.astype(np.uint8)).save(out, form)
    return out.getvalue()


def make_pictures(folder: Path, form: str) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.{form}").write_bytes(picture(form))


def picture_traps(folder: Path) -> Traps:
    out = io.BytesIO()
    Image.new("1", (13000, 13000)).save(out, "PNG")  # 21 kB; half a gigabyte as colours
    program = (  # PostScript, which Pillow hands to Ghostscript where it is installed
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n("
        + os.fsencode(folder / CANARY)
        + b") (w) file closefile\nshowpage\n"
    )
    return out.getvalue(), program, *webp_traps()


def webp_traps() -> Traps:
    """A few bytes that claim the most pixels that the three forms of the format can."""
    heads = (
        b"VP8X" + bytes([10, 0, 0, 0, 0, 0, 0, 0]) + b"\xff\x3f\x00" * 2,
        b"VP8L" + bytes([9, 0, 0, 0]) + b"\x2f\xff\xff\xff\x0f" + bytes(8),
        b"VP8 " + bytes([18, 0, 0, 0]) + b"\x10\x02\x00\x9d\x01\x2a\xff\x3f\xff\x3f" + bytes(8),
    )
    return tuple(b"RIFF" + (len(head) + 4).to_bytes(4, "little") + b"WEBP" + head for head in heads)


def make_lfw(folder: Path) -> None:
    (folder / "lfw/Some One").mkdir(parents=True)
    for number in range(14):
        (folder / f"lfw/Some One/{number:02d}.jpg").write_bytes(picture("jpeg", (250, 250)))


def make_tiny(folder: Path, official: bool) -> None:
    base = folder / "tiny-imagenet-200"
    if official:
        (base / "val/images").mkdir(parents=True)
        (base / "wnids.txt").write_text("n01\nn02\n")
        (base / "val/val_annotations.txt").write_text("a.png\tn01\t0\t0\n")
        (base / "val/images/a.png").write_bytes(picture("png", (64, 64)))
        return
    (base / "images").mkdir(parents=True)
    (base / "labels.csv").write_text("file,class\na.png,0\nb.png,0\n")
    for name in "ab":
        (base / f"images/{name}.png").write_bytes(picture("png", (64, 64)))


def tiny_traps(_: Path) -> Traps:
    return b"file,class\na.png," + b"9" * 5000 + b"\n", b'file,class\n"' + b"a" * 140_000, b"file,class\n../a.png,0\n"


def make_words(folder: Path, published: bool) -> None:
    base = folder / "iiit5k"
    (base / "test").mkdir(parents=True)
    (base / "test/1.png").write_bytes(picture("png", (40, 20)))
    if not published:
        (base / "test.tags").write_text("test/1.png HELLO\n")
        return
    kinds = [("ImgName", "O"), ("GroundTruth", "O")]
    records = np.array([("test/1.png", "HELLO"), ("test/1.png", "WORLD")], dtype=kinds)
    savemat(base / "testdata.mat", {"testdata": records}, do_compression=True)


def words_traps(_: Path) -> Traps:
    return b"../../../etc/hostname HELLO\n", b"/etc/hostname HELLO\n", b"\xff\xfe HELLO\n", b"test/1.png \xc3\xa4\n"


def make_npz(folder: Path) -> None:
    (folder / "data.npz").write_bytes(npz(inputs=np.zeros((4, 3), np.float32), labels=np.array([0, 1, 0, 1])))


def npy_header(shape: str, kind: str = "|u1") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def declared(shape: str, name: str) -> bytes:
    """An .npz whose array says to be of this shape and holds ten bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{name}.npy", npy_header(shape) + b"0123456789")
    return out.getvalue()


def npz_traps(folder: Path) -> Traps:
    evil = np.empty(1, dtype=object)
    evil[0] = Runs(folder / CANARY)
    return (
        npz(inputs=evil, labels=np.arange(1)),
        declared(str((2**40,)), "inputs"),
        declared(str((4, 2**31)), "inputs"),
        declared("(" * 90 + ")" * 90, "inputs"),
        npz(inputs=np.full((4, 3), np.nan), labels=np.arange(4)),
        npz(inputs=np.zeros((4, 3), ">f4"), labels=np.arange(4)),
        npz(inputs=np.zeros((4, 3), np.complex64), labels=np.arange(4)),
        npz(inputs=np.zeros((4, 3, 0, 1)), labels=np.arange(4)),
        npz(inputs=np.zeros((4, 3)), labels=np.array([0, 1, -5, 1])),
        bombs.zip_of("inputs.npy", npy_header(str((4, bombs.SIZE // 4)))),
    )


READERS: tuple[Reader, ...] = (
    Reader("idx-images", "mnist/t10k-images-idx3-ubyte", make_mnist, lambda f: load("mnist", "test", f), idx_traps),
    Reader("idx-labels", "mnist/t10k-labels-idx1-ubyte", make_mnist, lambda f: load("mnist", "test", f), idx_traps),
    Reader(
        "idx-gzip",
        "mnist/t10k-images-idx3-ubyte.gz",
        partial(make_mnist, ending=".gz"),
        lambda f: load("mnist", "test", f),
        gzip_traps,
    ),
    Reader("cifar10", "cifar-10-batches-py/test_batch", make_cifar, lambda f: load("cifar10", "test", f), pickle_traps),
    Reader(
        "cifar100",
        "cifar-100-python/test",
        partial(make_cifar, hundred=True),
        lambda f: load("cifar100", "test", f),
        pickle_traps,
    ),
    Reader("adult", "adult/adult.test", make_adult, lambda f: load("adult", "test", f), adult_traps),
    *(
        Reader(
            f"picture-{form}",
            f"a.{form}",
            partial(make_pictures, form=form),
            lambda f: load(f"{f}/:size=8", "test"),
            picture_traps,
        )
        for form in PICTURES
    ),
    Reader("lfw", "lfw/Some One/00.jpg", make_lfw, lambda f: load("lfw", "test", f), picture_traps),
    Reader(
        "tiny-imagenet-list",
        "tiny-imagenet-200/val/val_annotations.txt",
        partial(make_tiny, official=True),
        lambda f: load("tiny-imagenet", "test", f),
    ),
    Reader(
        "tiny-imagenet-classes",
        "tiny-imagenet-200/wnids.txt",
        partial(make_tiny, official=True),
        lambda f: load("tiny-imagenet", "test", f),
    ),
    Reader(
        "tiny-imagenet-csv",
        "tiny-imagenet-200/labels.csv",
        partial(make_tiny, official=False),
        lambda f: load("tiny-imagenet", "test", f),
        tiny_traps,
    ),
    Reader(
        "iiit5k-tags",
        "iiit5k/test.tags",
        partial(make_words, published=False),
        lambda f: real_words(100, 9, f),
        words_traps,
    ),
    Reader("iiit5k-mat", "iiit5k/testdata.mat", partial(make_words, published=True), lambda f: real_words(100, 9, f)),
    Reader(
        "npz-data",
        "data.npz",
        make_npz,
        lambda f: (load(f"{f}/data.npz", "test"), load_whole(f"{f}/data.npz")),
        npz_traps,
    ),
)
