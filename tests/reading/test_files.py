"""A file is written whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import pytest

from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading import files
from leakgauge.reading.files import VARIABLE, data_root, keep_whole, make_folder, read_json, regular, write_whole

fcntl = pytest.importorskip("fcntl")


def test_the_content_is_there_and_nothing_beside_it(tmp_path):
    write_whole(tmp_path / "a.txt", b"new")
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_old_file_is_replaced(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"old and longer")
    write_whole(tmp_path / "a.txt", b"new")
    assert (tmp_path / "a.txt").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "free some disk space"), (errno.EIO, "choose another --out")]
)
def test_a_full_disk_leaves_the_old_file_and_no_half_one(tmp_path, monkeypatch, number, advice):
    (tmp_path / "a.txt").write_bytes(b"old")

    def full(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=advice) as caught:
        write_whole(tmp_path / "a.txt", b"new")
    assert os.strerror(number) in str(caught.value)
    assert (tmp_path / "a.txt").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_interrupt_leaves_no_half_file_and_goes_on_up(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.txt", b"new")
    assert os.listdir(tmp_path) == []


def test_a_private_file_is_never_readable_by_others(tmp_path, monkeypatch):
    seen = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (seen.append(os.fstat(handle).st_mode), fsync(handle)))
    (tmp_path / "secret").write_bytes(b"old")
    (tmp_path / "secret").chmod(0o644)
    write_whole(tmp_path / "secret", b"new", private=True)
    written = [mode for mode in seen if stat.S_ISREG(mode)]
    assert [stat.S_IMODE(mode) for mode in written] == [0o600]  # not even while it is written
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_missing_folder_is_refused_in_one_line(tmp_path):
    with pytest.raises(BadInput, match=r"output .*a.txt' must be writable, got No such file"):
        write_whole(tmp_path / "none" / "a.txt", b"new")


def test_folders_are_made_with_their_parents(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_data_root_is_the_given_the_named_or_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert data_root() == Path.home() / ".cache" / "leakgauge"
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert data_root() == tmp_path
    assert data_root(tmp_path / "given") == tmp_path / "given"


def test_a_file_in_the_way_of_a_folder_is_said_to_be_one(tmp_path):
    (tmp_path / "here").write_text("")
    with pytest.raises(BadInput, match="must be a folder, got a file"):
        make_folder(tmp_path / "here")


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    left, held = (tmp_path / f".truth.safetensors.{name}.part" for name in ("0a", "0b"))
    left.write_text("private")
    os.mkfifo(tmp_path / ".trap.0c.part")  # opened plainly, it would keep us waiting for a writer
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        make_folder(tmp_path)
        assert not left.exists()
        assert held.exists()
    make_folder(tmp_path)
    assert not held.exists()


def test_a_part_that_was_taken_for_a_dead_ones_is_begun_again(tmp_path, monkeypatch):
    real, swept = files.hold, []

    def hold(handle):
        if not swept:
            swept.extend(tmp_path.glob(".*.part"))
            swept[0].unlink()
        return real(handle)

    monkeypatch.setattr(files, "_nameless", lambda *_: None)
    monkeypatch.setattr(files, "hold", hold)
    write_whole(tmp_path / "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert len(swept) == 1


@pytest.mark.parametrize("nameless", [True, False])
def test_what_is_being_written_has_no_name_where_the_system_can_do_that(tmp_path, monkeypatch, nameless):
    if nameless and (handle := files._nameless(tmp_path, 0o600)) is not None:
        os.close(handle)
    elif nameless:
        pytest.skip("no files without a name here")
    else:
        monkeypatch.setattr(files, "_nameless", lambda *_: None)
    seen, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda h: (seen.append(len(list(tmp_path.glob(".*.part")))), real(h)))
    for content in (b"first", b"second"):
        write_whole(tmp_path / "a", content, private=True)
        assert (tmp_path / "a").read_bytes() == content
    assert seen[0] == (0 if nameless else 1)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_the_name_is_on_disk_too(tmp_path, monkeypatch):
    order = []
    real, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda h: (order.append(stat.S_ISDIR(os.fstat(h).st_mode)), real(h)))
    monkeypatch.setattr(os, "replace", lambda *a: (order.append("renamed"), replace(*a)))
    write_whole(tmp_path / "a", b"whole")
    assert order == [False, "renamed", True]


def test_pipes_and_devices_are_no_files_to_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="no regular file"):
            regular(path)
    assert regular(tmp_path / "missing") == tmp_path / "missing"


def test_a_finished_folder_gets_its_name_with_all_of_it_on_disk(tmp_path, monkeypatch):
    (tmp_path / "made" / "inner").mkdir(parents=True)
    (tmp_path / "made" / "inner" / "file").write_text("x")
    order, real, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda h: (order.append(os.fstat(h).st_ino), real(h)))
    monkeypatch.setattr(os, "replace", lambda *a: (order.append("renamed"), replace(*a)))
    keep_whole(tmp_path / "made", tmp_path / "kept")
    kept = tmp_path / "kept"
    inside = {path.stat().st_ino for path in (kept, kept / "inner", kept / "inner" / "file")}
    assert set(order[:3]) == inside
    assert order[3:] == ["renamed", tmp_path.stat().st_ino]


def test_locks_of_dead_processes_go_too(tmp_path):
    (tmp_path / ".dead.lock").write_text("1 2")
    with (tmp_path / ".held.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        make_folder(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == [".held.lock"]


def test_json_comes_back(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1, null, "ä"]}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"a": [1, None, "ä"]}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000])
def test_anything_else_than_json_is_refused_alike(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(Unreadable):
        read_json(tmp_path / "a.json")


def test_json_that_is_not_there_is_unreadable(tmp_path):
    with pytest.raises(Unreadable, match="FileNotFoundError"):
        read_json(tmp_path / "none.json")
