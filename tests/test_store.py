"""What is on disk: it comes back as it was, half a file is no file, and only the owner may read it."""

import stat

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.store import Store, content_of, key_of, tensors_of
from leakgauge.types import Finding

FINDINGS = [
    Finding(
        "dlg", "prune", True, 0, 7, {"psnr": 12.5, "ssim": None}, ({"psnr": 12.5, "ssim": None},), 0.25, 3, 40, 1.5,
        ("diverged",), None, "dlg:steps=3", trace=(4.0, 0.25),
    ),
    Finding("dlg", "prune", True, 1, 8, {}, error="not applicable: no"),
]  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "run" / "deep")


def test_a_cell_comes_back_as_it_was(store):
    pictures = torch.rand(2, 1, 1, 8, 8)
    store.save_cell("abc", FINDINGS, pictures)
    findings, recovered = Store(store.folder).load_cell("abc")
    assert findings == FINDINGS
    assert torch.equal(recovered, pictures)


def test_a_cell_without_pictures_comes_back_without(store):
    store.save_cell("abc", FINDINGS, None)
    assert store.load_cell("abc") == (FINDINGS, None)


def test_a_missing_cell_is_none(store):
    assert store.load_cell("nothing") is None


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_cell_is_none_so_that_it_is_done_again(store, keep):
    store.save_cell("abc", FINDINGS, torch.rand(2, 1, 1, 8, 8))
    path = store.folder / "cells" / "abc.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert store.load_cell("abc") is None


def test_a_cell_of_something_else_is_none(store):
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, store.folder / "cells" / "abc.safetensors")
    assert store.load_cell("abc") is None


def test_private_files_can_be_read_by_their_owner_only(store):
    store.save_truth(torch.rand(1, 1, 3))
    store.save_cell("abc", FINDINGS, torch.rand(1, 1, 3))
    for path in store.folder.rglob("*.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_nothing_half_written_is_left(store):
    store.save_cell("abc", FINDINGS, torch.rand(2, 1, 3))
    store.save_cell("abc", FINDINGS, torch.rand(2, 1, 3))
    assert [p.name for p in (store.folder / "cells").iterdir()] == ["abc.safetensors"]


def test_values_that_are_not_finite_never_reach_the_disk(store):
    broken = Finding("dlg", "none", False, 0, 0, {"psnr": float("nan")})
    with pytest.raises(ValueError, match="Out of range float"):
        store.save_cell("abc", [broken], None)
    assert store.load_cell("abc") is None


def test_pictures_come_back_by_cell_name(store):
    truth, guess = torch.rand(2, 1, 3), torch.rand(2, 1, 3)
    store.save_truth(truth)
    store.save_cell("abc", FINDINGS, guess)
    store.save_cell("def", FINDINGS, None)
    store.save_cells_of_report({"dlg | none | plain": "abc", "labels | none | plain": "def", "lost": "ghi"})
    pictures = store.pictures()
    assert torch.equal(pictures.true, truth)
    assert list(pictures.recovered) == ["dlg | none | plain"]
    assert torch.equal(pictures.recovered["dlg | none | plain"], guess)


def test_a_run_without_pictures_has_none(store):
    assert store.pictures() is None


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match=r"output .* must be writable"):
        Store(tmp_path / "file" / "run")


def test_a_key_names_everything_it_was_given():
    assert key_of(a=1, b=2) == key_of(b=2, a=1)
    assert len({key_of(a=1, b=2), key_of(a=2, b=2), key_of(a=1), key_of(a="1", b=2)}) == 4


def test_the_content_of_own_files_is_part_of_a_key(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("one")
    before = content_of(f"{path}:factory")
    path.write_text("two")
    assert content_of(f"{path}:factory") != before
    assert content_of("lenet-dlg") == content_of(None) == ""


def test_the_hash_of_tensors_sees_values_and_order():
    a, b = torch.arange(4.0), torch.arange(3)
    assert tensors_of([a, b]) == tensors_of([a.clone(), b.clone()])
    assert len({tensors_of([a, b]), tensors_of([b, a]), tensors_of([a + 1e-6, b]), tensors_of([a])}) == 4
    assert tensors_of([torch.tensor(3), torch.zeros(2, 3).T])  # scalars and views


def test_reading_makes_no_folder(tmp_path):
    assert Store(tmp_path / "none", make=False).pictures() is None
    assert not (tmp_path / "none").exists()
