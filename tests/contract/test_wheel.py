"""The same sources give the same wheel, byte for byte: in another folder, at another time, with other modes."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def build_wheel(monkeypatch):
    pytest.importorskip("build", reason="the extra `test` brings it")
    pytest.importorskip("setuptools", minversion="77", reason="builds the wheel")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("build_wheel")


def test_two_builds_are_equal_byte_for_byte(build_wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    elsewhere = tmp_path / "a folder with a longer name"
    for part in build_wheel.PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copyfile
        elsewhere.mkdir(exist_ok=True)
        copy(ROOT / part, elsewhere / part)
    for path in filter(Path.is_file, elsewhere.rglob("*")):
        path.chmod(0o600)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    first = build_wheel.build(ROOT, tmp_path / "one")
    before = os.umask(0o077)
    try:
        second = build_wheel.build(elsewhere, tmp_path / "two")
    finally:
        os.umask(before)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
        assert not [name for name in archive.namelist() if "egg-info" in name or "__pycache__" in name]


def test_the_time_is_that_of_the_last_commit_unless_told(build_wheel, tmp_path, monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert "SOURCE_DATE_EPOCH" not in build_wheel.environment(tmp_path)  # no commit here
    if not shutil.which("git"):
        pytest.skip("no git")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for arguments in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "x"]):
        when = {**os.environ, "GIT_COMMITTER_DATE": "1650000000 +0000"}
        subprocess.run(["git", *arguments], cwd=tmp_path, env=when, check=True)
    assert build_wheel.environment(tmp_path)["SOURCE_DATE_EPOCH"] == "1650000000"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "5")
    assert build_wheel.environment(tmp_path)["SOURCE_DATE_EPOCH"] == "5"
