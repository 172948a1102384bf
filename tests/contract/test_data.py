"""What every data set must hold to: shape, range, labels, splits that share nothing, the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from leakgauge import catalog
from leakgauge.data import Dataset, load
from leakgauge.errors import BadInput

ROOT = Path(__file__).parents[2]
SOURCES = catalog.find("data")
EMBEDDED = [n for n, s in SOURCES.items() if s.embedded]
OTHERS = [n for n, s in SOURCES.items() if not s.embedded]


def check_split(data: Dataset) -> None:
    spec = data.spec
    assert len(data) > 0
    assert spec.kind in ("image", "tabular")
    assert len(spec.shape) == (3 if spec.kind == "image" else 1)
    inputs, labels = data.take(range(min(len(data), 64)))
    assert inputs.shape[1:] == spec.shape
    assert inputs.dtype == torch.float32
    assert inputs.min() >= 0
    assert inputs.max() <= 1
    assert inputs.max() > inputs.min()
    assert labels.dtype == torch.int64
    assert data.labels.min() >= 0
    assert data.labels.max() < spec.classes
    assert len(data.labels.unique()) > 1
    if spec.mean:
        assert len(spec.mean) == len(spec.std) == spec.shape[0]


@pytest.mark.parametrize("name", SOURCES)
def test_describes_itself(name: str) -> None:
    source = SOURCES[name]
    assert source.name == name == name.lower()
    assert source.summary
    assert source.paper
    assert source.embedded != bool(source.files)
    assert source.embedded != bool(source.downloads)
    for download in source.downloads:
        assert download.checksum.startswith(("md5:", "sha256:"))
        assert download.size > 0
        assert not Path(download.path).is_absolute()


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_data_loads_and_its_splits_share_no_sample(name: str) -> None:
    train, test = load(name, "train"), load(name, "test")
    check_split(train)
    check_split(test)
    assert train.spec == test.spec
    assert train.spec.name == name
    assert SOURCES[name].samples in (None, (len(train), len(test)))
    public = {row.numpy().tobytes() for row in train.inputs}
    assert not [i for i, row in enumerate(test.inputs) if row.numpy().tobytes() in public]


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_data_is_the_same_each_time(name: str) -> None:
    torch.manual_seed(1)
    first = load(name, "test")
    torch.manual_seed(2)
    second = load(name, "test")
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.labels, second.labels)


@pytest.mark.parametrize("name", OTHERS)
def test_data_on_disk_loads(name: str, real_data: Callable[[str], Path]) -> None:
    root = real_data(name)
    test = load(name, "test", root)
    check_split(test)
    assert torch.equal(test.labels, load(name, "test", root).labels)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", OTHERS)
def test_missing_files_are_one_line_that_says_how_to_get_them(name: str, split: str, tmp_path: Path) -> None:
    elsewhere = [p for f in SOURCES[name].files for p in f.paths if Path(p).is_absolute() and Path(p).exists()]
    if elsewhere:
        pytest.skip(f"{name} is installed at {elsewhere[0]}")
    with pytest.raises(BadInput) as caught:
        load(name, split, tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert f"leakgauge data fetch {name}" in message
    assert str(tmp_path) in message
    assert not list(tmp_path.iterdir()), "reading must not create anything"


@pytest.mark.parametrize("name", SOURCES)
def test_unknown_split_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="split must be one of train, test"):
        load(name, "validation", tmp_path)


def test_a_folder_with_other_things_in_it_is_not_taken_for_the_sets(tmp_path: Path) -> None:
    """Setting up fetches weights into the data folder: tests of real data still skip, and name what is missing."""
    (tmp_path / "lpips").mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "tests/attacks/test_rgap.py", "-k", "cifar"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LEAKGAUGE_DATA": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stdout
    assert "cifar10 is not in LEAKGAUGE_DATA" in ran.stdout
    assert "1 skipped" in ran.stdout
