import io
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from leakgauge.errors import Unreadable
from leakgauge.reading.tensors import by_name, read_npz, read_safetensors, read_torch

KINDS = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)


def saved(path, content):
    torch.save(content, path)
    return path


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind_of_numbers_comes_back_from_both(tmp_path, kind):
    tensors = {"a": torch.arange(6).reshape(2, 3).to(kind), "empty": torch.zeros(0, 3, dtype=kind)}
    one = read_torch(saved(tmp_path / "a.pt", tensors))
    (tmp_path / "a.safetensors").write_bytes(safetensors.torch.save(tensors, {"told": "words"}))
    other, texts = read_safetensors(tmp_path / "a.safetensors")
    for read in (one, other):
        assert all(torch.equal(read[n], t) and read[n].dtype == t.dtype for n, t in tensors.items())
    assert texts == {"told": "words"}


def test_what_torch_reads_is_read_alike(tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    rule = {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]}
    content = {
        "view": base[1:, ::2],
        "turned": base.T,
        "spread": torch.ones(1).expand(5),
        "number": torch.tensor(2.0),
        "shared": [base, base],
        "parameter": nn.Parameter(torch.ones(2)),
        "state": model.state_dict(),
        "optimiser": rule,
        "epoch": 3,
        "name": "x",
        "size": base.shape,
        "none": None,
    }
    read = read_torch(saved(tmp_path / "a.pt", content))
    for name in ("view", "turned", "spread", "number", "parameter"):
        assert torch.equal(read[name], content[name].detach())
        assert read[name].is_contiguous()
    assert isinstance(read["state"], OrderedDict)
    assert all(torch.equal(t, read["state"][n]) for n, t in content["state"].items())
    assert tuple(read["size"]) == (4, 6)
    assert (read["epoch"], read["name"], read["none"]) == (3, "x", None)
    assert read["optimiser"] == rule
    model.load_state_dict(read["state"])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1, dtype=torch.float16).as_strided((2**20, 2**20), (0, 0)),
        torch.zeros(2, device="meta"),
        torch.eye(2).to_sparse(),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2, dtype=torch.float8_e5m2),
    ],
    ids=["terabytes", "without numbers", "sparse", "complex", "eighths"],
)
def test_other_tensors_are_refused(tmp_path, tensor):
    with pytest.raises(Unreadable):
        read_torch(saved(tmp_path / "a.pt", {"a": tensor}))


def changed(path, change):
    """The archive with the pickle inside it changed; checksums are right again."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            new.writestr(name, change(body) if name.endswith("data.pkl") else body)
    path.write_bytes(out.getvalue())
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"K\x04tq\x07Q", b"J\x00\x00\x00\x40tq\x07Q"),  # a storage with more numbers than the file has
        (b"K\x04\x85q\x08", b"J\x00\x00\x00\x40\x85q\x08"),  # a tensor with more than the storage has
        (b"QK\x00K\x04", b"QK\x04K\x04"),  # one that begins behind it
        (b"QK\x00K\x04", b"QJ\xff\xff\xff\xffK\x04"),  # or before
        (b"FloatStorage", b"OtherStorage"),
        (b"storage", b"storagf"),
    ],
    ids=["storage", "tensor", "behind", "before", "kind", "word"],
)
def test_sizes_are_held_against_what_is_there(tmp_path, old, new):
    path = saved(tmp_path / "a.pt", {"a": torch.arange(4.0)})

    def change(body):
        assert old in body
        return body.replace(old, new)

    with pytest.raises(Unreadable):
        read_torch(changed(path, change))


class Reduced:
    """Pickled as a call of a function that a saved tensor needs, too."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("of", ["size", "shape", "stride"])
def test_a_size_is_no_tensor_whose_every_number_would_become_an_object(tmp_path, of):
    many = torch.zeros(1, dtype=torch.uint8).expand(2**20)
    call = (torch.Size, (many,))
    if of != "size":
        shape, stride = (many, (1,)) if of == "shape" else ((1,), many)
        call = (torch._utils._rebuild_tensor_v2, (torch.zeros(1)._typed_storage(), 0, shape, stride, False, None))
    with pytest.raises(Unreadable, match="a size that is none"):
        read_torch(saved(tmp_path / "a.pt", {"a": Reduced(*call)}))


def test_truth_is_0_or_1(tmp_path):
    path = saved(tmp_path / "a.pt", {"a": torch.tensor([True, False])})
    path.write_bytes(path.read_bytes())
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"\x07\x00" if name.endswith("data/0") else old.read(name))
    path.write_bytes(out.getvalue())
    assert read_torch(path)["a"].tolist() == [True, False]
    assert read_torch(path)["a"].view(torch.uint8).tolist() == [1, 0]


@pytest.mark.parametrize("how", ["bare", "old", "packed", "big-endian"])
def test_other_archives_are_refused(tmp_path, how):
    path = tmp_path / "a.pt"
    if how == "bare":
        path.write_bytes(b"\x80\x02}q\x00.")
    elif how == "old":
        torch.save({"a": torch.ones(1)}, path, _use_new_zipfile_serialization=False)
    else:
        saved(path, {"a": torch.ones(1)})
        out = io.BytesIO()
        kind = zipfile.ZIP_DEFLATED if how == "packed" else zipfile.ZIP_STORED
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", kind) as new:
            for name in old.namelist():
                swapped = how == "big-endian" and name.endswith("byteorder")
                new.writestr(name, b"big" if swapped else old.read(name))
        path.write_bytes(out.getvalue())
    with pytest.raises(Unreadable):
        read_torch(path)


def test_kinds_that_torch_lacks_are_refused(tmp_path):
    header = b'{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"xx")
    with pytest.raises(Unreadable, match="float8"):
        read_safetensors(tmp_path / "a.safetensors")


def test_only_named_tensors_pass_as_such():
    tensors = {"a": torch.ones(1)}
    assert by_name(tensors) == tensors
    assert by_name({"a": 1}) is by_name({1: torch.ones(1)}) is by_name([torch.ones(1)]) is None


# --- arrays from .npz ---------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        np.arange(3, dtype=">f4"),
        np.zeros((0, 4)),
        np.array(3),
        np.array(["a", "bc"]),
    ],
    ids=["floats", "by column", "other byte order", "empty", "one number", "texts"],
)
def test_arrays_come_back_as_numpy_reads_them(tmp_path, save, array):
    save(tmp_path / "a.npz", x=array, y=np.arange(2))
    read = read_npz(tmp_path / "a.npz")
    assert read.keys() == {"x", "y"}
    assert read["x"].dtype.isnative
    assert read["x"].flags.writeable
    with np.load(tmp_path / "a.npz") as whole:
        assert np.array_equal(read["x"], whole["x"])


def members(path, **contents):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"{name}.npy", content)


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_an_array_of_more_than_there_is_is_refused(tmp_path):
    members(tmp_path / "a.npz", x=npy(np.zeros(10, np.uint8)).replace(b"(10,)", b"(99,)"))
    with pytest.raises(Unreadable, match=r"declares \(99,\) and holds 10 bytes"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY\x03\x00", npy(np.zeros(3))[:-1], npy(np.zeros(3)) + b"x", npy(np.zeros(2, "V0"))]
)
def test_damaged_arrays_are_refused(tmp_path, content):
    members(tmp_path / "a.npz", x=content)
    with pytest.raises(Unreadable):
        read_npz(tmp_path / "a.npz")


def test_arrays_of_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    with pytest.raises(Unreadable, match="not run"):
        read_npz(tmp_path / "a.npz")


def test_what_is_no_archive_of_arrays_is_refused(tmp_path):
    with pytest.raises(Unreadable, match="FileNotFoundError"):
        read_npz(tmp_path / "none.npz")
    (tmp_path / "a.npz").write_bytes(b"no zip")
    with pytest.raises(Unreadable, match="BadZipFile"):
        read_npz(tmp_path / "a.npz")
