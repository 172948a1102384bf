"""Words cut out of real photographs: the IIIT5K test words, if they are in the data folder.

Mishra, Alahari and Jawahar, BMVC 2012. `iiit5k/testdata.mat` as published, or `iiit5k/*.tags` with a file and its word
on each line.

The published list is a MATLAB 5 file (MathWorks, MAT-File Format, chapter 1). SciPy reads the whole format and trusts
the sizes in it: a damaged file of a kilobyte makes it ask for gigabytes. The reader here takes records of texts only,
and checks that every part lies within the part around it.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from leakgauge.data.files import damaged
from leakgauge.errors import BadInput, Unreadable
from leakgauge.lab.words.rendering import Pictures
from leakgauge.lab.words.word_folder import Entry, inside, read_list, readable, stretched
from leakgauge.reading.files import VARIABLE, data_root, regular
from leakgauge.reading.unpacked import most_unpacked

FOLDER, PUBLISHED = "iiit5k", "testdata.mat"


def real_words(width: int, longest: int, root: Path | None = None) -> Pictures:
    """All test words of at most `longest` letters and digits, stretched to the network's size."""
    folder = data_root(root) / FOLDER
    kept = readable(listed(root), longest)
    if not kept:
        raise damaged(folder, "a folder with words of letters and digits", "none")
    return stretched(kept, width)


def listed(root: Path | None = None) -> list[Entry]:
    """Every listed file with its word."""
    folder = data_root(root) / FOLDER
    published, lists = folder / PUBLISHED, sorted(folder.glob("*.tags"))
    if published.is_file():
        return _published(published)
    if not lists:
        raise BadInput(
            "data set 'iiit5k'",
            allowed=f"at {folder}, with {PUBLISHED} or a list *.tags",
            got="nothing there",
            do=f"unpack the published archive there, or point {VARIABLE} at the folder that holds it",
        )
    return [entry for path in lists for entry in read_list(path)]


def _published(path: Path) -> list[Entry]:
    try:
        records = read_records(path, "testdata", ("ImgName", "GroundTruth"))
    except Unreadable as error:
        raise damaged(path, "the published list of test words", error) from error
    return [(path.parent / inside(path, name), word) for name, word in records]


_HEADER = 128  # bytes before the first variable
_MATRIX, _PACKED = 14, 15  # kinds of parts
_RECORDS, _TEXT = 2, 4  # classes of matrices
_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I"}  # kinds of parts that hold whole numbers
_LETTERS = {1: "latin-1", 2: "latin-1", 4: "utf-16-le", 16: "utf-8", 17: "utf-16-le", 18: "utf-32-le"}


def read_records(path: Path, variable: str, fields: Sequence[str]) -> list[tuple[str, ...]]:
    """The named fields of every record of an array of records; each must be a text."""
    try:
        content = regular(path).read_bytes()[_HEADER:]
        for kind, part in _parts(content):
            if kind == _PACKED:
                kind, part = next(_parts(_unpacked(part, most_unpacked(path))))
            if kind == _MATRIX and (found := _records(part, variable, fields)) is not None:
                return found
    except Unreadable:
        raise
    except (OSError, struct.error, zlib.error, UnicodeDecodeError, StopIteration, LookupError, ValueError) as error:
        raise Unreadable(type(error).__name__) from error
    raise Unreadable(f"no {variable!r}")


def _unpacked(part: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(part, most + 1)
    if len(content) > most:
        raise Unreadable("a variable that unpacks to more than a hundred times the file's size")
    return content


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each part; a short one has both in its first eight bytes, a long one begins on the next."""
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, at)
        if kind >> 16:
            kind, size = kind & 0xFFFF, kind >> 16
            begin, end = at + 4, at + 8
        else:
            begin = at + 8
            end = begin + size + (0 if kind == _PACKED else -size % 8)
        if begin + size > len(content):
            raise Unreadable("a part that was cut off")
        yield kind, content[begin : begin + size]
        at = end


def _records(matrix: bytes, variable: str, fields: Sequence[str]) -> list[tuple[str, ...]] | None:
    """None if the matrix is another variable."""
    parts = _parts(matrix)
    (_, flags), shape, (_, name) = next(parts), _numbers(next(parts)), next(parts)
    if name.decode("latin-1") != variable:
        return None
    if flags[0] != _RECORDS:
        raise Unreadable("something other than records")
    (length,), (_, names) = _numbers(next(parts)), next(parts)
    if not 0 < length <= len(names):
        raise Unreadable("records without fields")
    own = [names[i : i + length].rstrip(b"\0").decode("latin-1") for i in range(0, len(names), length)]
    columns = [own.index(field) for field in fields]
    values = [value for _, value in parts]  # record by record, field by field
    if math.prod(shape) * len(own) != len(values):
        raise Unreadable(f"{len(values)} values in records of shape {shape}")
    return [tuple(_text(values[at + c]) for c in columns) for at in range(0, len(values), len(own))]


def _text(matrix: bytes) -> str:
    """A matrix of one line of letters."""
    parts = _parts(matrix)
    (_, flags), _, _, (kind, letters) = next(parts), next(parts), next(parts), next(parts, (1, b""))
    if flags[0] != _TEXT:
        raise Unreadable("a field that is no text")
    return letters.decode(_LETTERS[kind])


def _numbers(part: tuple[int, bytes]) -> tuple[int, ...]:
    kind, content = part
    form = _NUMBERS[kind]
    return struct.unpack(f"<{len(content) // struct.calcsize(form)}{form}", content)
