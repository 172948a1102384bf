"""Archives into the data folder: nothing lands outside it, and half an archive never counts."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from leakgauge.errors import BadInput
from leakgauge.reading.files import cannot_write, keep_whole
from leakgauge.reading.unpacked import most_unpacked, open_tar, open_zip


def unpack(archive: Path, root: Path, folder: str) -> Path:
    """Unpack beside its destination, then move `folder` into place; files already there are replaced."""
    try:
        staging = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=root))
    except OSError as error:
        raise cannot_write(root, error) from error
    try:
        if archive.suffix == ".zip":
            _unzip(archive, staging)
        else:
            with open_tar(archive) as tar:
                tar.extractall(staging, filter=_Members(most_unpacked(archive)))
        if not (staging / folder).is_dir():
            raise _refused(archive, f"no folder {folder!r}")
        _move(staging / folder, root / folder)
    except BadInput:
        raise
    except OSError as error:
        if error.errno is None:  # what gzip says of a damaged archive
            raise _refused(archive, f"{type(error).__name__}: {error}") from error
        raise cannot_write(root / folder, error) from error
    except Exception as error:  # a damaged archive can raise nearly anything
        raise _refused(archive, f"{type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return root / folder


class _Members:
    """Files and folders only, and not too much of them: data sets have no use for links and devices, attackers do."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self, member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
        if not (member.isreg() or member.isdir()) or not _stays_inside(member.name):
            raise tarfile.TarError(f"member {member.name!r} is a link, a device, or points outside")
        self.left -= member.size
        if self.left < 0 or member.size < 0:
            raise tarfile.TarError("it unpacks to more than a hundred times its size")
        return tarfile.data_filter(member, destination)


def _unzip(archive: Path, destination: Path) -> None:
    with open_zip(archive) as zipped:
        for name in zipped.namelist():
            if not _stays_inside(name):
                raise zipfile.BadZipFile(f"member {name!r} points outside")
        zipped.extractall(destination)  # writes links as plain files


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and ":" not in name


def _move(source: Path, target: Path) -> None:
    """At once where nothing is there yet, else file by file: a partly filled folder gets completed."""
    if not target.exists():
        keep_whole(source, target)
        return
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        keep_whole(path, place)


def _refused(archive: Path, got: str) -> BadInput:
    return BadInput(
        f"archive {str(archive)!r}",
        allowed="a sound archive of plain files",
        got=got,
        do="delete it and fetch it again",
    )
