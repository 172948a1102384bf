"""Tensors by name from .safetensors, from .npz, and from .pt or .pth, as `torch.save` writes them since torch 1.6.

`torch.load` is not used, also not with `weights_only`: a short pickle can still ask it for tensors of any size. Here a
tensor or array gets the bytes that are in the file and no others.
"""

from __future__ import annotations

import math
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.errors import Unreadable
from leakgauge.reading.files import regular
from leakgauge.reading.pickles import Buildable, unpickle
from leakgauge.reading.unpacked import most_unpacked, open_zip

_KINDS = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_ZIP = b"PK\x03\x04"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and the texts in the header. Sizes are checked by the library, the kinds of numbers here."""
    try:
        with safetensors.safe_open(regular(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            texts = dict(file.metadata() or {})
    except Exception as error:  # SafetensorError, and whatever torch says about a kind that it does not have
        raise Unreadable(_brief(error)) from error
    check_kinds(tensors)
    return tensors, texts


def check_kinds(tensors: Mapping[str, Tensor]) -> None:
    """Whole numbers, floats and truth values; not all of torch can work with others."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _KINDS.values():
            raise Unreadable(f"numbers of the kind {tensor.dtype} in {name!r}")


def read_torch(path: Path) -> Any:
    """What `torch.save` was given: tensors, numbers and texts in mappings and lists. Anything else is refused."""
    try:
        with regular(path).open("rb") as file:
            if file.read(4) != _ZIP:
                raise Unreadable("no archive as torch.save writes it; a bare pickle was not run")
        with open_zip(path) as archive:
            return _Saved(path, archive).content()
    except Unreadable:
        raise
    except Exception as error:  # zipfile's many
        raise Unreadable(_brief(error)) from error


@dataclass(frozen=True)
class _Kind:
    """A kind of numbers; what the name of a storage class stands for."""

    dtype: torch.dtype


class _Mapping(OrderedDict[Any, Any], Buildable):
    """A state dict; the versions of its modules, which come as its second part, are of no use here."""

    def __init__(self, *pairs: Any) -> None:
        super().__init__()
        if pairs:
            raise Unreadable("a mapping that is filled at once")

    def build(self, state: Any) -> None:
        pass


class _Saved:
    """One archive: a pickle, and beside it the numbers of each storage."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise Unreadable("a packed archive, which torch.save does not write")
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Unreadable("no archive as torch.save writes it")
        self._archive, self._pickle, self._folder = archive, pickles[0], pickles[0].removesuffix("data.pkl")
        self._left = most_unpacked(path)
        self._storages: dict[str, bytearray] = {}
        order = f"{self._folder}byteorder"
        if order in archive.namelist() and archive.read(order) != sys.byteorder.encode():
            raise Unreadable("numbers in another machine's byte order")

    def content(self) -> Any:
        names: dict[tuple[str, str], Any] = {("torch", name): _Kind(kind) for name, kind in _KINDS.items()}
        names |= {
            ("collections", "OrderedDict"): _Mapping,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            ("torch", "Size"): _size,
        }
        return unpickle(self._archive.read(self._pickle), names, self._storage)

    def _storage(self, pid: Any) -> Tensor:
        """The numbers of one storage, flat."""
        word, kind, key, _, count = pid
        if word != "storage" or not isinstance(kind, _Kind) or not isinstance(key, str) or type(count) is not int:
            raise Unreadable("a storage that is none")
        if key not in self._storages:
            self._storages[key] = bytearray(self._archive.read(f"{self._folder}data/{key}"))
        content = self._storages[key]
        if not 0 <= count * kind.dtype.itemsize <= len(content):
            raise Unreadable(f"a storage that declares {count:,} numbers and holds {len(content):,} bytes")
        if count == 0:
            return torch.zeros(0, dtype=kind.dtype)
        if kind.dtype == torch.bool:  # any other byte than 0 and 1 would be neither true nor false
            return torch.frombuffer(content, dtype=torch.uint8, count=count) != 0
        return torch.frombuffer(content, dtype=kind.dtype, count=count)

    def _tensor(self, numbers: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> Tensor:
        """Some of the numbers, in a shape. One number may stand in many places, but not in any number of them."""
        shape, stride = _size(shape), _size(stride)
        if not isinstance(numbers, Tensor) or len(shape) != len(stride):
            raise Unreadable("a tensor without numbers")
        if any(type(n) is not int or n < 0 for n in (offset, *shape, *stride)):
            raise Unreadable("a tensor with a negative size")
        count = math.prod(shape)
        last = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        self._left -= count * numbers.element_size()
        if self._left < 0 or (count and last >= len(numbers)):
            raise Unreadable(f"a tensor of shape {shape}, more than there is")
        if count == 0:
            return torch.zeros(shape, dtype=numbers.dtype)
        return numbers.as_strided(shape, stride, offset).clone(memory_format=torch.contiguous_format)


def _size(numbers: Any = ()) -> tuple[Any, ...]:
    """Not of a tensor: as Python objects its numbers would take a hundred times the memory."""
    if not isinstance(numbers, (tuple, list)):
        raise Unreadable("a size that is none")
    return tuple(numbers)


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else 'no message'}"


def by_name(loaded: Any) -> dict[str, Tensor] | None:
    """A mapping from names to tensors; None if it is something else."""
    if not isinstance(loaded, Mapping):
        return None
    fits = all(isinstance(name, str) and isinstance(value, Tensor) for name, value in loaded.items())
    return dict(loaded) if fits else None


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Every array by its name, in this machine's byte order. Objects are refused: they would have to be unpickled."""
    try:
        with open_zip(path) as archive:
            arrays = {}
            for member in archive.infolist():
                if member.filename.endswith(".npy"):
                    with archive.open(member) as file:
                        arrays[member.filename.removesuffix(".npy")] = _array(file, member.file_size)
            return arrays
    except Unreadable:
        raise
    except Exception as error:  # zipfile, zlib, NumPy and its parser of headers each raise their own
        raise Unreadable(_brief(error)) from error


def _array(file: IO[bytes], size: int) -> NDArray[Any]:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise Unreadable(f"an array of format {version}")
    shape, by_column, kind = _HEADERS[version](file)
    if kind.hasobject or kind.itemsize == 0:
        raise Unreadable("pickled objects, which were not run" if kind.hasobject else "an array of nothing")
    holds = size - file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != holds:
        raise Unreadable(f"an array that declares {shape} and holds {holds:,} bytes")
    content = bytearray(holds)
    view, done = memoryview(content), 0
    while done < holds and (got := file.readinto(view[done:])):  # type: ignore[attr-defined]
        done += got
    if file.read(1) or done < holds:  # to the end, where the checksum is compared
        raise Unreadable("an array that was cut off")
    flat: NDArray[Any] = np.frombuffer(content, kind)
    array = flat.reshape(shape, order="F" if by_column else "C")
    return array.astype(kind.newbyteorder("="), copy=False)
