import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from leakgauge import catalog
from leakgauge.data import Dataset, load
from leakgauge.data._dataset import resized
from leakgauge.data.loading import load_whole
from leakgauge.errors import BadInput


def picture(path, colour, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


# --- known names -----------------------------------------------------------------------------------


def test_all_promised_data_sets_are_in_the_catalog():
    assert set(catalog.find("data")) == {
        *("digits", "photos32", "photos64", "breast-cancer", "mnist", "fashion-mnist", "cifar10", "cifar100"),
        *("lfw", "adult", "tiny-imagenet"),
    }


@pytest.mark.parametrize("name", [n for n, s in catalog.find("data").items() if s.embedded])
def test_embedded_data_keep_the_contract(name):
    source = catalog.get("data", name)
    train, test = load(name, "train"), load(name, "test")
    assert train.spec == test.spec
    assert test.spec.name == name
    if source.samples:
        assert source.samples == (len(train), len(test))
    inputs, labels = test.take(range(4))
    assert inputs.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert len(test.spec.mean) == len(test.spec.std) == (test.spec.shape[0] if test.spec.kind == "image" else 0)


def test_an_unknown_name_gets_the_nearest_known_one():
    with pytest.raises(BadInput, match="did you mean 'photos32'"):
        load("photo32")


def test_an_unknown_split_is_refused():
    with pytest.raises(BadInput, match="train, test"):
        load("digits", "valid")


def test_the_root_comes_from_the_environment_unless_given(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKGAUGE_DATA", str(tmp_path / "named"))
    with pytest.raises(BadInput, match="named/adult"):
        load("adult")
    with pytest.raises(BadInput, match="given/adult"):
        load("adult", root=tmp_path / "given")
    monkeypatch.delenv("LEAKGAUGE_DATA")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(BadInput, match=r"home/\.cache/leakgauge/adult"):
        load("adult")


# --- known names at another size ---------------------------------------------------------------------


def test_a_size_may_follow_a_known_name():
    small, large, same = (load(f"digits{s}") for s in ("", ":size=32", ":size=8"))
    assert (large.spec.name, large.spec.shape) == ("digits:size=32", (1, 32, 32))
    assert (large.spec.classes, large.spec.mean, large.spec.std) == (10, small.spec.mean, small.spec.std)
    inputs, labels = large.take([5, 9])
    assert inputs.shape == (2, 1, 32, 32)
    assert inputs.dtype == torch.float32
    assert float(inputs.min()) >= 0
    assert float(inputs.max()) <= 1
    assert torch.equal(labels, small.take([5, 9])[1])
    assert same.spec.shape == (1, 8, 8)
    assert torch.equal(same.take([5])[0], small.take([5])[0])


@pytest.mark.parametrize("size", [24, 96])
def test_resampling_is_bicubic_with_antialiasing(size):
    """Pillow is the other library: its bicubic filter on bytes, which rounds and cuts off after each of two passes."""
    photos = load("photos64")
    mine = resized(photos, "same", size).take([3])[0][0].permute(1, 2, 0) * 255
    image = Image.fromarray(photos.inputs[3].permute(1, 2, 0).numpy())
    other = torch.from_numpy(np.array(image.resize((size, size), Image.Resampling.BICUBIC)))
    assert (mine - other).abs().mean() < 0.5
    assert (mine - other).abs().max() < 4


def test_a_picture_is_resampled_alike_alone_and_among_others_and_only_when_taken():
    data = load("digits:size=20")
    assert data.inputs.shape[1:] == (1, 8, 8)
    together = data.take(torch.tensor([[0, 1], [2, 3]]))[0]
    assert together.shape == (2, 2, 1, 20, 20)
    assert torch.equal(data.take([2])[0][0], together[1, 0])


def test_photographs_show_the_same_windows_in_more_pixels():
    """Not enlarged crops: size=128 shrinks back to photos64, and has detail that photos64 has not."""
    own, large = load("photos64"), load("photos64:size=128")
    assert (large.spec.name, large.spec.shape) == ("photos64:size=128", (3, 128, 128))
    assert torch.equal(own.labels, large.labels)
    some = range(0, len(own), 50)
    shrunk = F.interpolate(large.take(some)[0], (64, 64), mode="bicubic", antialias=True)
    assert (shrunk - own.take(some)[0]).abs().mean() < 0.01
    enlarged = resized(own, "enlarged", 128).take(some)[0]
    assert (large.take(some)[0] - enlarged).abs().mean() > 0.005


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        *[(f"digits:size={text}", "a whole number of pixels") for text in ("big", "", "-3", "8.5", "8,9", "1e2")],
        *[(f"digits:size={size}", "between 8 and 512 pixels, got") for size in (0, 7, 513)],
        ("digits:sise=16", "NAME or NAME:size=PIXELS, got 'sise=16'; write digits:size=64"),
        ("digits:", "NAME or NAME:size=PIXELS"),
        ("digits:16", "NAME or NAME:size=PIXELS"),
        ("breast-cancer:size=16", "a set of images to have a size, got a table; write breast-cancer alone"),
    ],
)
def test_a_size_that_cannot_be_used_is_refused(spec, words):
    with pytest.raises(BadInput, match=words):
        load(spec)


def test_a_known_name_with_a_size_comes_before_a_folder(tmp_path, monkeypatch):
    picture(tmp_path / "digits" / "a.png", (255, 0, 0))
    monkeypatch.chdir(tmp_path)
    assert load("digits:size=16").spec.shape == (1, 16, 16)
    assert load("./digits:size=16").spec.shape == (3, 16, 16)


def test_missing_files_are_named_with_a_size_too(tmp_path):
    with pytest.raises(BadInput, match="leakgauge data fetch cifar10"):
        load("cifar10:size=64", root=tmp_path)


def test_only_pictures_of_the_same_channels_can_be_resampled():
    spec = load("digits:size=16").spec
    with pytest.raises(BadInput, match=r"of shape \(1, 16, 16\)"):
        Dataset(spec, torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]), resample=True)


def test_real_data_at_another_size(real_data):
    data = load("cifar10:size=64", "test", real_data("cifar10"))
    assert data.take([0])[0].shape == (1, 3, 64, 64)


# --- folders ---------------------------------------------------------------------------------------


def test_sub_folders_are_classes_and_each_is_halved(tmp_path):
    for name, colour in (("dog", (255, 0, 0)), ("cat", (0, 255, 0))):
        for i in range(3):
            picture(tmp_path / name / f"{i}.png", colour)
    (tmp_path / "dog" / "notes.txt").write_text("not looked at")
    test, train = load(str(tmp_path)), load(f"{tmp_path}/", "train")
    assert test.spec.shape == (3, 32, 32)
    assert test.spec.classes == 2
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert train.labels.tolist() == [0, 1]
    assert test.inputs[0, :, 0, 0].tolist() == [0, 255, 0]  # cat comes first


def test_a_size_may_follow_and_the_middle_square_is_kept(tmp_path, monkeypatch):
    wide = np.zeros((16, 48, 3), dtype=np.uint8)
    wide[:, 16:32] = 255
    (tmp_path / "mine").mkdir()
    Image.fromarray(wide).save(tmp_path / "mine" / "a.png")
    monkeypatch.chdir(tmp_path)
    test = load("mine:size=16")
    assert test.spec.shape == (3, 16, 16)
    assert int(test.inputs.min()) == 255
    assert load("mine/:size=8").spec.shape == (3, 8, 8)
    assert load("mine").spec.name == "mine"


def test_a_flat_folder_is_one_class_of_a_model_with_two(tmp_path):
    for i in range(4):
        picture(tmp_path / f"{i}.jpg", (i, i, i))
    data = load(str(tmp_path))
    assert data.labels.tolist() == [0, 0]
    assert data.spec.classes == 2


def test_folders_that_cannot_be_used_are_explained(tmp_path):
    with pytest.raises(BadInput, match="no images"):
        load(str(tmp_path))
    picture(tmp_path / "a.png", (0, 0, 0))
    with pytest.raises(BadInput, match="at least two images of a class"):
        load(str(tmp_path), "train")
    picture(tmp_path / "dog" / "a.png", (0, 0, 0))
    with pytest.raises(BadInput, match="got both"):
        load(str(tmp_path))
    (tmp_path / "a.png").unlink()
    (tmp_path / "dog" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with pytest.raises(BadInput, match=r"dog/a\.png.*readable image"):
        load(str(tmp_path))
    for size in ("0", "big", "5000", "-3", ""):
        with pytest.raises(BadInput, match="pixels"):
            load(f"{tmp_path}:size={size}")
    with pytest.raises(BadInput, match="existing folder"):
        load("no/such/folder")


# --- .npz ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "shape", "expected"),
    [
        (("inputs", "labels"), (4, 3, 8, 8), (3, 8, 8)),
        (("x", "y"), (4, 8, 8, 3), (3, 8, 8)),
        (("images", "labels"), (4, 8, 8), (1, 8, 8)),
        (("images", "labels"), (4, 8, 8, 1), (1, 8, 8)),
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_npz_images_in_the_usual_layouts(tmp_path, monkeypatch, keys, shape, expected, kind):
    values = np.linspace(0, 1, int(np.prod(shape))).reshape(shape)
    values = (values * 255).astype(kind) if kind is np.uint8 else values
    (tmp_path / "dir.v2").mkdir()
    np.savez(tmp_path / "dir.v2" / "own.npz", **dict(zip(keys, (values, np.array([0, 1, 0, 4])), strict=True)))
    monkeypatch.chdir(tmp_path)
    test, train = load("dir.v2/own.npz"), load("dir.v2/own.npz", "train")
    assert test.spec == train.spec
    assert test.spec.shape == expected
    assert test.spec.classes == 5
    assert len(test) + len(train) == 4
    first = test.take([0])[0][0]
    layout = np.moveaxis(values[0], -1, 0) if shape[-1] in (1, 3) else values[0].reshape(expected)
    scale = 255 if kind is np.uint8 else 1
    np.testing.assert_allclose(first.numpy(), layout / scale, atol=1e-6)


def test_npz_tables_are_tabular(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.random.default_rng(0).random((6, 5)), y=np.array([0, 1] * 3))
    data = load(str(tmp_path / "t.npz"))
    assert data.spec.kind == "tabular"
    assert data.spec.shape == (5,)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((2, 3))}, "array called labels or y"),
        ({"y": np.array([0, 1])}, "array called inputs or x or images, got none|got y"),
        ({"x": np.zeros((2, 3)), "y": np.array([0])}, "2 whole numbers"),
        ({"x": np.zeros((2, 5, 5, 5)), "y": np.array([0, 1])}, "reshape"),
        ({"x": np.zeros((2, 3)), "y": np.array([0, -1])}, "number the classes from 0"),
        ({"x": np.zeros((0, 3)), "y": np.zeros(0, dtype=int)}, "whole numbers"),
        ({"x": np.array([{}, {}]), "y": np.array([0, 1])}, "without pickled objects"),
    ],
)
def test_npz_files_that_cannot_be_used_are_explained(tmp_path, arrays, words):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(BadInput, match=words):
        load(str(tmp_path / "bad.npz"))


def test_a_broken_or_absent_npz_is_named(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    for name in ("bad.npz", "absent.npz"):
        with pytest.raises(BadInput, match=name):
            load(str(tmp_path / name))


# --- own code --------------------------------------------------------------------------------------

OWN = """
import numpy as np, torch
from leakgauge.data import Dataset
from leakgauge.types import DataSpec

SPEC = DataSpec("mine", (2,), 3, "tabular")

def arrays():
    return np.zeros((4, 2), dtype=np.float32), np.array([0, 0, 1, 1])

def tensors(split):
    samples = 2 if split == "test" else 5
    return torch.ones(samples, 2), torch.zeros(samples, dtype=torch.int64)

def dataset():
    return Dataset(SPEC, torch.rand(4, 2), torch.tensor([2, 2, 1, 1]))

def nothing():
    return None

def fails():
    raise KeyError("gone")

number = 3
"""


def test_own_factories_in_a_file(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    at = f"{tmp_path}/own.py"
    assert load(f"{at}:arrays").labels.tolist() == [0, 1]
    assert len(load(f"{at}:arrays", "train")) == 2
    assert (len(load(f"{at}:tensors")), len(load(f"{at}:tensors", "train"))) == (2, 5)
    assert load(f"{at}:dataset").spec.classes == 3
    assert load(f"{at}:dataset").labels.tolist() == [2, 1]


def test_own_factories_in_a_module(tmp_path, monkeypatch):
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    (tmp_path / "own_package" / "data.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    assert load("own_package.data:arrays").spec.name == "arrays"


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        ("nothing", "return two arrays"),
        ("fails", "KeyError"),
        ("number", "can be called"),
        ("array", "did you mean 'arrays'"),
    ],
)
def test_own_factories_that_cannot_be_used_are_explained(tmp_path, thing, words):
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(BadInput, match=words):
        load(f"{tmp_path}/own.py:{thing}")


# --- all of it, in order: the batch behind a saved update -------------------------------------------


def test_own_arrays_whole_and_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import torch\n\n\ndef batch():\n    return torch.rand(3, 1, 4, 6), torch.tensor([2, 0, 2])\n\n\n"
        "def halves(split):\n    n = 3 if split == 'test' else 5\n    return torch.rand(n, 4), torch.zeros(n).long()\n"
    )
    whole, public = load_whole("mine.py:batch")
    assert whole.labels.tolist() == [2, 0, 2]
    assert public is None
    private, public = load_whole("mine.py:halves")
    assert (len(private), len(public)) == (3, 5)


def test_an_archive_whole(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2), np.float32), y=np.array([1, 0, 1]))
    whole, public = load_whole(str(tmp_path / "a.npz"))
    assert (whole.labels.tolist(), public) == ([1, 0, 1], None)


def test_an_npz_may_say_how_many_classes_there_are(tmp_path):
    arrays = {"inputs": np.random.default_rng(0).random((2, 5)), "labels": np.array([0, 3])}
    np.savez(tmp_path / "few.npz", **arrays, classes=10)
    assert load(str(tmp_path / "few.npz")).spec.classes == 10
    np.savez(tmp_path / "none.npz", **arrays, classes=2)
    assert load(str(tmp_path / "none.npz")).spec.classes == 4
    np.savez(tmp_path / "odd.npz", **arrays, classes=np.array([1.5]))
    with pytest.raises(BadInput, match=r"classes in .*odd\.npz' must be one whole number"):
        load(str(tmp_path / "odd.npz"))
