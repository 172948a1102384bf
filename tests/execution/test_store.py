"""What is on disk: it comes back as it was, a damaged file is named and done again, and only the owner may read it."""

import dataclasses
import errno
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from leakgauge.errors import BadInput
from leakgauge.execution.store import Store, Trial, in_place
from leakgauge.reading.keys import content_of, key_of, tensors_of
from leakgauge.types import Finding

FINDINGS = [
    Finding(
        "dlg",
        "prune",
        True,
        0,
        7,
        {"psnr": 12.5, "ssim": None},
        ({"psnr": 12.5, "ssim": None},),
        0.25,
        3,
        40,
        1.5,
        ("diverged",),
        None,
        "dlg:steps=3",
        trace=(4.0, 0.25),
    ),
    Finding("dlg", "prune", True, 1, 8, {"psnr": 0.1 + 0.2}, note="chose the last layer"),
]


def trials(*numbers, pictures=True):
    return [
        Trial(dataclasses.replace(FINDINGS[n % 2], trial=n), torch.rand(1, 1, 8, 8) if pictures else None)
        for n in numbers
    ]


def same(one: Trial, other: Trial) -> bool:
    pictures = (one.recovered, other.recovered)
    equal = pictures == (None, None) or torch.equal(*pictures)
    return one.finding == other.finding and equal


@pytest.fixture
def told():
    return []


@pytest.fixture
def store(tmp_path, told):
    return Store(tmp_path / "run" / "deep", notice=told.append)


def cells(store):
    return sorted((store.folder / "cells").iterdir())


@pytest.mark.parametrize("pictures", [True, False])
def test_trials_come_back_as_they_were(store, pictures):
    saved = trials(0, 1, pictures=pictures)
    store.save("abc", saved)
    found = Store(store.folder).load("abc")
    assert list(found) == [0, 1]
    assert all(same(found[n], saved[n]) for n in (0, 1))


def test_pictures_may_lie_in_memory_as_a_convolution_leaves_them(store):
    ours = [
        dataclasses.replace(t, recovered=torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last))
        for t in trials(0, 1)
    ]
    store.save("cell", ours)
    assert all(same(store.load("cell")[t.finding.trial], t) for t in ours)


def test_a_cell_may_come_in_parts_and_in_any_order(store):
    late, early = trials(4, 5), trials(0, 1)
    store.save("abc", late)
    store.save("abc", early)
    assert list(store.load("abc")) == [0, 1, 4, 5]
    assert store.finished("abc") == {0, 1, 4, 5}


def test_a_trial_that_two_processes_finished_is_there_once(store):
    first, second = trials(0, 1), trials(1, 2)
    store.save("abc", first)
    Store(store.folder).save("abc", second)
    found = store.load("abc")
    assert list(found) == [0, 1, 2]
    assert same(found[1], first[1])


def test_a_missing_cell_has_no_trials(store):
    assert store.load("nothing") == {}


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file_is_named_and_its_trials_are_missing(store, told, keep):
    store.save("abc", trials(0, 1))
    store.save("abc", trials(2))
    path = cells(store)[0]
    path.write_bytes(path.read_bytes()[:keep])
    assert list(store.load("abc")) == [2]
    assert len(told) == 1
    assert f"{path} is damaged" in told[0]
    assert "run again" in told[0]
    assert store.finished("abc") == {2}
    assert not path.exists()


@pytest.mark.parametrize("place", [-1, 700])
def test_one_wrong_bit_is_found(store, told, place):
    """In the pictures, and in the findings."""
    store.save("abc", trials(0, 1))
    (path,) = cells(store)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert store.load("abc") == {}
    assert len(told) == 1


def test_a_file_that_is_gone_is_named_and_its_trials_are_missing(store, told):
    store.save("abc", trials(0))
    cells(store)[0].unlink()
    assert store.load("abc") == {}
    assert "No such file" in told[0]


def test_a_file_of_something_else_is_thrown_away(store, told):
    save_file({"x": torch.zeros(1)}, store.folder / "cells" / "abc.safetensors")
    assert Store(store.folder, notice=told.append).load("abc") == {}
    assert "not one of ours" in told[0]


def test_a_file_whose_process_was_killed_before_it_told_the_index_is_found(store):
    store.save("abc", trials(0, 1))
    (store.folder / "index.sqlite").unlink()
    assert list(Store(store.folder).load("abc")) == [0, 1]


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one " * 30, b"SQLite format 3\0"])
def test_a_damaged_index_costs_nothing_but_a_line(store, told, content):
    saved = trials(0, 1)
    store.save("abc", saved)
    (store.folder / "index.sqlite").write_bytes(content)
    found = Store(store.folder, notice=told.append).load("abc")
    assert all(same(found[n], saved[n]) for n in (0, 1))
    assert len(told) == 1
    assert "index.sqlite is damaged" in told[0]


def test_a_cell_can_be_forgotten(store):
    store.save("abc", trials(0, 1))
    store.save("def", trials(0))
    store.forget("abc")
    assert store.load("abc") == {}
    assert list(Store(store.folder).load("def")) == [0]
    assert Store(store.folder).load("abc") == {}


def test_a_unit_is_claimed_by_one(store):
    other = Store(store.folder)
    with store.claim("abc", 0) as first, other.claim("abc", 0) as second, other.claim("abc", 1) as third:
        assert (first, second, third) == (True, False, True)
    with other.claim("abc", 0) as again:
        assert again


def test_private_files_can_be_read_by_their_owner_only(store):
    store.save_truth(torch.rand(1, 1, 3), "a setup")
    store.save("abc", trials(0))
    for path in store.folder.rglob("*.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_nothing_half_written_is_left(store):
    store.save("abc", trials(0))
    store.save("abc", trials(1))
    assert [p.suffix for p in cells(store)] == [".safetensors"] * 2


def test_values_that_are_not_finite_never_reach_the_disk(store):
    broken = Finding("dlg", "none", False, 0, 0, {"psnr": float("nan")})
    with pytest.raises(ValueError, match="Out of range float"):
        store.save("abc", [Trial(broken, None)])
    assert store.load("abc") == {}


def test_pictures_come_back_by_cell_name_each_at_its_place(store, told):
    truth = torch.rand(4, 1, 1, 8, 8)
    store.save_truth(truth, "a setup")
    saved = trials(1, 3)
    store.save("abc", saved[:1])
    store.save("abc", saved[1:])
    store.save("def", trials(0, pictures=False))
    store.save_cells_of_report({"dlg | none | plain": "abc", "labels | none | plain": "def", "lost": "ghi"}, "a setup")
    pictures = Store(store.folder, make=False).pictures()
    assert torch.equal(pictures.true, truth)
    assert list(pictures.recovered) == ["dlg | none | plain"]
    recovered = pictures.recovered["dlg | none | plain"]
    assert torch.equal(recovered[[1, 3]], torch.stack([t.recovered for t in saved]))
    assert (recovered[[0, 2]] == 0).all()
    cells(store)[0].write_bytes(b"")
    assert Store(store.folder, make=False, notice=told.append).pictures() is not None
    assert "left out" in told[0]
    assert any("4 of 4 trials of lost are not there" in line for line in told)


def test_pictures_of_another_run_than_the_report_are_left_out(store, told):
    store.save_truth(torch.rand(1, 1, 1, 8, 8), "a setup")
    store.save_cells_of_report({}, "a setup")
    reading = Store(store.folder, make=False, notice=told.append)
    assert reading.kept_private
    assert reading.pictures("a setup") is not None
    assert reading.pictures("another setup") is None
    assert "another run than report.json" in told[0]


def test_no_pictures_no_tensor():
    assert in_place({}, 3) is None
    assert in_place({0: trials(0, pictures=False)[0]}, 3) is None


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


def test_a_whole_file_in_the_place_of_another_cells_is_not_believed(store, told):
    for key in ("abc", "def"):
        store.save(key, trials(0))
    one, other = cells(store)
    spare = one.with_suffix(".spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)
    again = Store(store.folder, notice=told.append)
    assert again.load("abc") == again.load("def") == {}
    assert len(told) == 2
    assert all("it is the file of another cell" in line for line in told)
    assert not cells(store)


def test_pictures_of_another_runs_samples_are_left_out_and_named(store, tmp_path, told):
    other = Store(tmp_path / "other")
    for kept, of in ((store, "a setup"), (other, "another setup")):
        kept.save_truth(torch.rand(1, 1, 1, 8, 8), of)
        kept.save("abc", trials(0))
        kept.save_cells_of_report({"dlg | none | plain": "abc"}, of)
    (other.folder / "truth.safetensors").replace(store.folder / "truth.safetensors")
    assert Store(store.folder, make=False, notice=told.append).pictures() is None
    assert "it belongs to something else" in told[0]


def test_private_samples_that_cannot_be_removed_are_told(store, monkeypatch):
    store.save_truth(torch.rand(1, 1, 1, 8, 8), "a setup")

    def broken(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", broken)
    with pytest.raises(BadInput, match=r"truth\.safetensors.* must be writable, got Permission denied"):
        store.save_truth(None, "a setup")
