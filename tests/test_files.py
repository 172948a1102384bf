"""A file is written whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import pytest

from leakgauge.errors import BadInput
from leakgauge.files import VARIABLE, data_root, make_folder, write_whole


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
    assert [stat.S_IMODE(mode) for mode in seen] == [0o600]  # not even while it is written
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
