import gzip
import io
import tarfile
import warnings
import zipfile

import pytest

from leakgauge.errors import Unreadable
from leakgauge.reading.unpacked import most_unpacked, open_tar, open_zip


def zip_at(path, *members, kind=zipfile.ZIP_DEFLATED):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", kind) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of a name that comes twice
        for name, content in members:
            archive.writestr(name, content)


def test_members_are_read(tmp_path):
    zip_at(tmp_path / "a.zip", ("a", b"x"), ("b", b"y"))
    with open_zip(tmp_path / "a.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"a": b"x", "b": b"y"}


def test_a_name_that_comes_twice_is_refused(tmp_path):
    zip_at(tmp_path / "a.zip", ("a", b"x"), ("a", b"y"))
    with pytest.raises(Unreadable, match="two members of one name"), open_zip(tmp_path / "a.zip"):
        pass


def test_what_unpacks_to_too_much_is_refused_before(tmp_path):
    zip_at(tmp_path / "a.zip", ("a", bytes(65 << 20)))
    assert (tmp_path / "a.zip").stat().st_size < 1 << 20
    with pytest.raises(Unreadable, match="hundred times"), open_zip(tmp_path / "a.zip"):
        pass


def test_a_large_file_may_unpack_to_more(tmp_path):
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    assert most_unpacked(tmp_path / "small") == 64 << 20
    assert most_unpacked(tmp_path / "large") == 100 << 20


def test_a_tar_is_read_and_its_declared_sizes_get_no_memory(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("a")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(out.getvalue()))
    with open_tar(tmp_path / "a.tar.gz") as archive:
        assert archive.extractfile("a").read() == b"x"
        assert archive.fileobj.read(1 << 60) is not None  # would not fit into any machine


def test_files_are_closed_also_after_a_refusal(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK\x05\x06 no zip")
    with pytest.raises(zipfile.BadZipFile), open_zip(tmp_path / "a.zip"):
        pass
