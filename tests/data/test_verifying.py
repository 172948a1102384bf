import gzip
import hashlib

from leakgauge.data import inventory, verify
from leakgauge.data._dataset import DataSource, StandardFile
from leakgauge.data.verifying import verify_source

CONTENT = b"some data"
MD5 = f"md5:{hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()}"


def source(*files):
    def read(root, split):
        raise AssertionError("files with checksums are not read")

    return DataSource("toy", "", "", embedded=False, read=read, files=files)


def statuses(files, root):
    return [check.status for check in verify_source(source(*files), root)]


def test_contents_count_not_their_compression(tmp_path):
    file = StandardFile(("a.gz", "a"), MD5)
    assert statuses([file], tmp_path) == ["missing"]
    (tmp_path / "a").write_bytes(CONTENT)
    assert statuses([file], tmp_path) == ["ok"]
    for level in (1, 9):
        (tmp_path / "a.gz").write_bytes(gzip.compress(CONTENT, level))
        assert statuses([file], tmp_path) == ["ok"]


def test_changed_and_truncated_files_differ(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT + b"!")
    assert statuses([StandardFile(("a",), MD5)], tmp_path) == ["differs"]
    (tmp_path / "b.gz").write_bytes(gzip.compress(CONTENT)[:-4])
    assert statuses([StandardFile(("b.gz",), MD5)], tmp_path) == ["differs"]


def test_a_set_without_checksums_is_read_instead(tmp_path):
    (check,) = verify("lfw", tmp_path)
    assert check.status == "missing"
    (tmp_path / "lfw").mkdir()
    (check,) = verify("lfw", tmp_path)
    assert check.status == "differs"
    assert "14 images" in check.note


def test_embedded_data_are_always_there():
    assert [check.status for check in verify("digits")] == ["ok"]


def test_inventory_has_a_row_per_data_set(tmp_path):
    rows = {row.name: row for row in inventory(tmp_path)}
    assert rows["digits"].present
    assert rows["digits"].samples == 1797
    assert not rows["mnist"].present
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").touch()
    assert not {row.name: row for row in inventory(tmp_path)}["cifar10"].present
    (folder / "test_batch").touch()
    assert {row.name: row for row in inventory(tmp_path)}["cifar10"].present
