"""Damage to a valid file: to its bytes, and inside its container (zip, gzip, safetensors) with the checksum mended.

Mending matters: a flipped bit in a zip member mostly ends at the checksum, while somebody who means harm writes a
valid archive around what they want to be read.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable

_WORDS = (
    b"NaN",
    b"Infinity",
    b"-1",
    b"1e999",
    b"9" * 40,
    b"9" * 5000,
    b"null",
    b"true",
    b'""',
    b"{}",
    b"[]",
    b"[" * 3000,
    b"../../x",
    b"/tmp/x",
    b"\0",
    b"\xff" * 8,
    b"<script>",
    b"\r\n",
    b",",
    b'"',
    b"\xed\xa0\x80",
    b"nan",
    b"inf",
    b"cos\nsystem\n(S'touch ran'\ntR.",
    b"\x80\x04\x95",
    b"O8",
    b"|O",
    b"<f8",
    b"(1099511627776,)",
    b"1099511627776",
)
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**40, 2**62, 2**63, 2**64 - 1)
_VALUES = (None, True, 0, -1, 0.5, 1e308, 10**400, 2**63, "", "x", "../x", "nan", [], {}, [[]], [1], {"a": 1}, [None])
_LARGEST = 1 << 20  # a mutated file does not grow past this


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One damaged version of `content`; the same random numbers give the same bytes."""
    inside = _container_of(content)
    if inside is not None and rng.random() < 0.6:
        try:
            return inside(content, rng)[:_LARGEST]
        except Exception:
            pass  # it was damaged before: go on with its bytes
    return edited(content, rng)[:_LARGEST]


def edited(content: bytes, rng: random.Random) -> bytes:
    """One to four edits of the bytes."""
    out = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_EDITS)(out, rng)
    return bytes(out)


def _place(out: bytearray, rng: random.Random) -> int:
    """Anywhere; headers more often than the rest."""
    return rng.randint(0, min(len(out), 256) if rng.random() < 0.5 else len(out))


def _flip(out: bytearray, rng: random.Random) -> None:
    at = _place(out, rng)
    if at < len(out):
        out[at] ^= 1 << rng.randint(0, 7)


def _byte(out: bytearray, rng: random.Random) -> None:
    at = _place(out, rng)
    if at < len(out):
        out[at] = rng.randint(0, 255)


def _number(out: bytearray, rng: random.Random) -> None:
    """A size that is too large, too small or negative, as both machines write it."""
    form = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
    size = struct.calcsize(form)
    at = _place(out, rng)
    out[at : at + size] = struct.pack(form, rng.choice(_NUMBERS) & (1 << 8 * size) - 1)


def _truncate(out: bytearray, rng: random.Random) -> None:
    del out[_place(out, rng) :]


def _delete(out: bytearray, rng: random.Random) -> None:
    at = _place(out, rng)
    del out[at : at + rng.randint(1, 64)]


def _insert(out: bytearray, rng: random.Random) -> None:
    out[(at := _place(out, rng)) : at] = bytes(rng.randint(0, 255) for _ in range(rng.randint(1, 8)))


def _word(out: bytearray, rng: random.Random) -> None:
    at, word = _place(out, rng), rng.choice(_WORDS)
    out[at : at + (len(word) if rng.random() < 0.5 else 0)] = word


def _repeat(out: bytearray, rng: random.Random) -> None:
    at, many = _place(out, rng), rng.randint(1, 32)
    out[at:at] = out[at : at + rng.randint(1, 64)] * many


def _digits(out: bytearray, rng: random.Random) -> None:
    """A number that is written out becomes another one."""
    places = [i for i, b in enumerate(out[:4096]) if 48 <= b <= 57]
    if places:
        at = rng.choice(places)
        end = at
        while end < len(out) and 48 <= out[end] <= 57:
            end += 1
        out[at:end] = rng.choice((b"0", b"-1", b"1e999", b"1099511627776", b"0.5", b"NaN", b'"a"', b"[[1]]", b"null"))


_EDITS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _byte,
    _number,
    _truncate,
    _delete,
    _insert,
    _word,
    _repeat,
    _digits,
)


def _container_of(content: bytes) -> Callable[[bytes, random.Random], bytes] | None:
    if content[:2] == b"PK":
        return _in_zip
    if content[:2] == b"\x1f\x8b":
        return _in_gzip
    if len(content) > 10 and content[8:9] == b"{":
        return _in_safetensors
    return _in_json if content[:1] in (b"{", b"[") else None


def _in_zip(content: bytes, rng: random.Random) -> bytes:
    """One member changed, or its name, or another one added; with the checksums that belong to it."""
    out, deflated = io.BytesIO(), rng.random() < 0.3
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        chosen = rng.choice(names)
        rename = rng.random() < 0.15
        for name in names:
            body = old.read(name)
            if name == chosen:
                body = body if rename else edited(body, rng)
                name = rng.choice(("../x", "/tmp/x", "a\\x", name + "x", names[0])) if rename else name
            kind = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
            if name not in new.namelist():  # a second of the same name is for handmade files
                new.writestr(zipfile.ZipInfo(name), body, kind)
    return out.getvalue()


def _in_gzip(content: bytes, rng: random.Random) -> bytes:
    return gzip.compress(edited(gzip.decompress(content), rng), mtime=0)


def _in_json(content: bytes, rng: random.Random) -> bytes:
    """Some values become others, some go; the rest is as it was, so that what reads the document gets that far."""
    whole = json.loads(content)
    for _ in range(rng.randint(1, 3)):
        at = whole
        while isinstance(at, (dict, list)) and at:
            key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            if not isinstance(at[key], (dict, list)) or not at[key] or rng.random() < 0.2:
                if rng.random() < 0.2:
                    del at[key]
                else:
                    at[key] = rng.choice(_VALUES)
                break
            at = at[key]
    return json.dumps(whole).encode()


def _in_safetensors(content: bytes, rng: random.Random) -> bytes:
    """The header changed, and its length with it."""
    (size,) = struct.unpack("<Q", content[:8])
    header = content[8 : 8 + size]
    header = _in_json(header, rng) if rng.random() < 0.5 else edited(header, rng)
    return struct.pack("<Q", len(header)) + header + content[8 + size :]
