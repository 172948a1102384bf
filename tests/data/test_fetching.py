"""What is in the data folder, and what comes over the network."""

import errno
import gzip
import hashlib
import http.server
import io
import os
import re
import tarfile
import threading
import zipfile

import pytest

from leakgauge import catalog
from leakgauge.data import fetch, fetching, inventory, verify
from leakgauge.data._dataset import DataSource, Download, StandardFile
from leakgauge.data.fetching import fetch_source, unpack, verify_source
from leakgauge.errors import BadInput, LeakgaugeError

CONTENT = bytes(range(256)) * 1000


class _Server(http.server.ThreadingHTTPServer):
    files: dict
    ranges = True  # does it know Range?
    break_after = None  # bytes, then the connection drops
    asked: list


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][: server.break_after])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with _Server(("127.0.0.1", 0), _Handler) as running:
        running.files, running.asked = {"/a": CONTENT}, []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def source(server, path="/a", name="set/a", content=CONTENT, unpacks_to="", inside="set/a"):
    def read(root, split):
        raise AssertionError("not read")

    url = f"http://127.0.0.1:{server.server_port}{path}"
    item = Download(url, name, sha256(content), len(content), unpacks_to)
    checksum = sha256(b"inside") if unpacks_to else sha256(content)
    return DataSource(
        "toy", "", "", embedded=False, read=read, files=(StandardFile((inside,), checksum),), downloads=(item,)
    )


# --- download --------------------------------------------------------------------------------------


def test_a_file_is_fetched_checked_and_not_fetched_again(server, tmp_path):
    seen = []
    assert fetch_source(source(server), tmp_path, lambda *p: seen.append(p)) == (tmp_path / "set" / "a",)
    assert (tmp_path / "set" / "a").read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["a"]
    assert fetch_source(source(server), tmp_path) == ()
    assert len(server.asked) == 1


def test_a_dropped_connection_is_resumed(server, tmp_path):
    server.break_after = 100_000
    with pytest.raises(LeakgaugeError, match="ended after 100000 of 256000 bytes; run it again") as caught:
        fetch_source(source(server), tmp_path)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "set" / "a.part").stat().st_size == 100_000
    assert not (tmp_path / "set" / "a").exists()
    server.break_after = None
    fetch_source(source(server), tmp_path)
    assert server.asked == [None, "bytes=100000-"]
    assert (tmp_path / "set" / "a").read_bytes() == CONTENT
    assert not (tmp_path / "set" / "a.part").exists()


def test_a_server_that_drips_is_left(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_LOOK", 0.0)
    monkeypatch.setattr(fetching, "_SLOWEST", 10**12)
    with pytest.raises(LeakgaugeError, match="it sends less than 1,000,000,000,000 bytes a second; run it again"):
        fetch_source(source(server), tmp_path)
    assert (tmp_path / "set" / "a.part").stat().st_size > 0


def test_a_link_in_the_place_of_the_part_is_not_followed(server, tmp_path):
    (tmp_path / "precious").write_bytes(CONTENT[:100])
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.part").symlink_to(tmp_path / "precious")
    with pytest.raises(LeakgaugeError, match="could not fetch"):
        fetch_source(source(server), tmp_path)
    assert (tmp_path / "precious").read_bytes() == CONTENT[:100]


def test_an_interrupt_leaves_the_part_for_resuming(server, tmp_path):
    def interrupt(done, total):
        if done > 70_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_source(source(server), tmp_path, interrupt)
    kept = (tmp_path / "set" / "a.part").stat().st_size
    assert 70_000 < kept < len(CONTENT)
    fetch_source(source(server), tmp_path)
    assert server.asked[-1] == f"bytes={kept}-"
    assert (tmp_path / "set" / "a").read_bytes() == CONTENT


def test_a_server_without_range_starts_over(server, tmp_path):
    server.ranges = False
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.part").write_bytes(b"x" * 500)
    fetch_source(source(server), tmp_path)
    assert (tmp_path / "set" / "a").read_bytes() == CONTENT


def test_a_part_that_is_too_long_starts_over(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.part").write_bytes(b"x" * (len(CONTENT) + 1))
    fetch_source(source(server), tmp_path)
    assert (tmp_path / "set" / "a").read_bytes() == CONTENT


def test_a_complete_part_needs_no_network(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.part").write_bytes(CONTENT)
    fetch_source(source(server), tmp_path)
    assert server.asked == []


@pytest.mark.parametrize("served", [CONTENT[:-1] + b"?", CONTENT[:-1], CONTENT * 2, b""])
def test_a_wrong_file_is_thrown_away(server, tmp_path, served):
    server.files["/a"] = served or b"x"
    with pytest.raises(BadInput, match="as published") as caught:
        fetch_source(source(server), tmp_path)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "set").iterdir()) == []


def test_a_damaged_file_is_replaced(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"damaged")
    fetch_source(source(server), tmp_path)
    assert (tmp_path / "set" / "a").read_bytes() == CONTENT


def test_network_errors_are_one_line(server, tmp_path):
    with pytest.raises(LeakgaugeError, match="404"):
        fetch_source(source(server, path="/absent"), tmp_path)
    closed = source(server)
    server.server_close()
    server.shutdown()
    with pytest.raises(LeakgaugeError, match="could not fetch http://127") as caught:
        fetch_source(closed, tmp_path)
    assert "\n" not in str(caught.value)


# --- archives --------------------------------------------------------------------------------------


def tar_of(**members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                tar.addfile(info)
    return buffer.getvalue()


def zip_of(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(("pack", "name"), [(tar_of, "a.tar.gz"), (zip_of, "a.zip")])
def test_archives_are_unpacked_and_removed(server, tmp_path, pack, name):
    archive = pack(**{"set/sub/a": b"inside", "set/b": b"more", "readme": b"stays out"})
    server.files["/a"] = archive
    toy = source(server, name=name, content=archive, unpacks_to="set", inside="set/sub/a")
    assert fetch_source(toy, tmp_path) == (tmp_path / "set",)
    assert (tmp_path / "set" / "sub" / "a").read_bytes() == b"inside"
    assert [p.name for p in tmp_path.iterdir()] == ["set"]
    assert fetch_source(toy, tmp_path) == ()
    (tmp_path / "set" / "sub" / "a").write_bytes(b"damaged")
    (tmp_path / "set" / "mine").touch()
    fetch_source(toy, tmp_path)
    assert (tmp_path / "set" / "sub" / "a").read_bytes() == b"inside"
    assert (tmp_path / "set" / "mine").exists()


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("a.tar.gz", tar_of(**{"set/a": b"x", "../escaped": b"x"})),
        ("a.tar.gz", tar_of(**{"set/a": b"x", "/escaped": b"x"})),
        ("a.tar.gz", tar_of(**{"set/a": b"x", "set/../../escaped": b"x"})),
        ("a.tar.gz", tar_of(set=(tarfile.SYMTYPE, ".."), **{"set/escaped": b"x"})),
        ("a.tar.gz", tar_of(**{"set/a": b"x", "set/link": (tarfile.LNKTYPE, "../escaped")})),
        ("a.tar.gz", tar_of(**{"set/a": b"x", "set/fifo": (tarfile.FIFOTYPE, "")})),
        ("a.tar.gz", tar_of(**{"other/a": b"x"})),
        ("a.tar.gz", tar_of(**{"set/a": CONTENT})[:-200]),
        ("a.tar.gz", b"no archive"),
        ("a.zip", zip_of(**{"set/a": b"x", "../escaped": b"x"})),
        ("a.zip", zip_of(**{"set/a": b"x", "/escaped": b"x"})),
        ("a.zip", zip_of(**{"set/a": b"x", "..\\escaped": b"x"})),
        ("a.zip", b"no archive"),
    ],
)
def test_unsound_archives_are_refused_and_nothing_escapes(tmp_path, name, archive):
    root = tmp_path / "root"
    root.mkdir()
    (root / name).write_bytes(archive)
    with pytest.raises(BadInput, match="sound archive") as caught:
        unpack(root / name, root, "set")
    assert "\n" not in str(caught.value)
    assert [p.name for p in root.iterdir()] == [name]
    assert [p.name for p in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["open", "mkdir", "fsync", "replace"])
def test_no_half_set_is_left_whatever_call_fails(server, tmp_path, monkeypatch, call, error):
    """Each call in turn: one line, no part of the set under its name, and the next try gives all of it."""
    real, counted, failing = getattr(os, call), [0], [0]

    def fails(*given, **more):
        if str(tmp_path) in str(given[0]) or call == "fsync":
            counted[0] += 1
            if counted[0] == failing[0]:
                raise OSError(error, os.strerror(error))
        return real(*given, **more)

    monkeypatch.setattr(os, call, fails)
    packed = tar_of(**{"set/a": b"inside", "set/b": b"beside"})
    server.files["/a.tar.gz"] = packed
    toy = source(server, "/a.tar.gz", "a.tar.gz", packed, "set")
    fetch_source(toy, tmp_path / "first")
    assert counted[0] > 0
    for number in range(1, counted[0] + 1):
        root, counted[0], failing[0] = tmp_path / f"root{number}", 0, number
        said = os.strerror(error)
        try:
            fetch_source(toy, root)
        except (BadInput, LeakgaugeError) as refused:
            said = str(refused)
        assert os.strerror(error) in said
        assert "\n" not in said
        failing[0] = 0
        fetch_source(toy, root)
        assert {p.name: p.read_bytes() for p in (root / "set").iterdir()} == {"a": b"inside", "b": b"beside"}


# --- the list --------------------------------------------------------------------------------------


def test_every_data_set_is_embedded_or_can_be_fetched():
    for found in catalog.find("data").values():
        assert found.embedded != bool(found.downloads), found.name
        for item in found.downloads:
            assert re.fullmatch("sha256:[0-9a-f]{64}", item.checksum), item.url
            assert item.url.startswith("https://")
            assert item.size > 0


def test_embedded_data_need_no_fetching(tmp_path):
    assert fetch("digits", tmp_path) == ()
    with pytest.raises(BadInput, match="did you mean 'mnist'"):
        fetch("mnst", tmp_path)


CONTENT_VERIFYING = b"some data"
MD5 = f"md5:{hashlib.md5(CONTENT_VERIFYING, usedforsecurity=False).hexdigest()}"


def source_of_verifying(*files):
    def read(root, split):
        raise AssertionError("files with checksums are not read")

    return DataSource("toy", "", "", embedded=False, read=read, files=files)


def statuses(files, root):
    return [check.status for check in verify_source(source_of_verifying(*files), root)]


def test_contents_count_not_their_compression(tmp_path):
    file = StandardFile(("a.gz", "a"), MD5)
    assert statuses([file], tmp_path) == ["missing"]
    (tmp_path / "a").write_bytes(CONTENT_VERIFYING)
    assert statuses([file], tmp_path) == ["ok"]
    for level in (1, 9):
        (tmp_path / "a.gz").write_bytes(gzip.compress(CONTENT_VERIFYING, level))
        assert statuses([file], tmp_path) == ["ok"]


def test_changed_and_truncated_files_differ(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT_VERIFYING + b"!")
    assert statuses([StandardFile(("a",), MD5)], tmp_path) == ["differs"]
    (tmp_path / "b.gz").write_bytes(gzip.compress(CONTENT_VERIFYING)[:-4])
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
