"""Small archives that unpack to hundreds of megabytes of zeros, made without packing that much."""

from __future__ import annotations

import struct
import tarfile
import zlib
from functools import cache

SIZE = 600 << 20  # bytes that come out
_PIECE = 1 << 20


def gzip_of(begin: bytes) -> bytes:
    """A .gz of `begin` and the zeros."""
    body, total, size = _deflated(begin)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + body + struct.pack("<II", total, size & 0xFFFFFFFF)


def tar_of(name: str) -> bytes:
    """A .tar.gz with one file of zeros; that is also how an archive ends."""
    info = tarfile.TarInfo(name)
    info.size = SIZE - 2 * _PIECE
    return gzip_of(info.tobuf())


def zip_of(name: str, begin: bytes = b"") -> bytes:
    """A .zip with one member: `begin` and the zeros."""
    body, total, size = _deflated(begin)
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, total, len(body), size, len(name), 0)
    local = b"PK\x03\x04" + common + name.encode() + body
    listed = b"PK\x01\x02\x14\0" + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name.encode()
    return local + listed + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(listed), len(local), 0)


def _deflated(begin: bytes) -> tuple[bytes, int, int]:
    """`begin` and the zeros packed, their checksum and their size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    body, total = first + _zeros() + zlib.compressobj(9, zlib.DEFLATED, -15).flush(), zlib.crc32(begin)
    for _ in range(SIZE // _PIECE):
        total = zlib.crc32(bytes(_PIECE), total)
    return body, total, len(begin) + SIZE


@cache
def _zeros() -> bytes:
    """One packed piece after another: after a full flush none depends on those before."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(bytes(_PIECE)) + packer.flush(zlib.Z_FULL_FLUSH)) * (SIZE // _PIECE)
