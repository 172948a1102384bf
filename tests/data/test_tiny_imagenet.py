import pytest
from PIL import Image

from leakgauge.data import load
from leakgauge.errors import BadInput


def picture(path, grey, size=64):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (grey, grey, grey)).save(path, "JPEG", quality=100)


@pytest.fixture
def official(tmp_path):
    folder = tmp_path / "tiny-imagenet-200"
    for at, wnid in enumerate(("n02", "n01")):
        for i in range(2):
            picture(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", 100 * at + i * 10)
    picture(folder / "val" / "images" / "val_0.JPEG", 200)
    picture(folder / "val" / "images" / "val_1.JPEG", 20)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n")
    return tmp_path


@pytest.fixture
def reduced(tmp_path):
    folder = tmp_path / "tiny-imagenet"
    rows = ["file,wnid,class,words"]
    for i in range(6):
        picture(folder / "images" / f"val_{i}.JPEG", 40 * i)
        rows.append(f'val_{i}.JPEG,n{i // 3},{i // 3},"a fish, big"')
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_the_official_folder(official):
    train, test = load("tiny-imagenet", "train", official), load("tiny-imagenet", "test", official)
    assert train.labels.tolist() == [0, 0, 1, 1]  # classes by sorted WordNet id
    assert train.inputs[:, 0, 0, 0].tolist() == pytest.approx([100, 110, 0, 10], abs=2)
    assert test.labels.tolist() == [1, 0]
    assert test.inputs[:, 0, 0, 0].tolist() == pytest.approx([200, 20], abs=2)


def test_the_reduced_folder_is_halved_by_class(reduced):
    train, test = load("tiny-imagenet", "train", reduced), load("tiny-imagenet", "test", reduced)
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert train.labels.tolist() == [0, 1]
    assert train.inputs[:, 0, 0, 0].tolist() == pytest.approx([40, 160], abs=2)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("file,wnid,class\n../../secret.JPEG,n0,0\n", "plain file names"),
        ("file,wnid,class\n/etc/passwd,n0,0\n", "plain file names"),
        ("file,wnid,class\nval_0.JPEG,n0,200\n", "class below 200"),
        ("file,wnid,class\nval_0.JPEG\n", "class below 200"),
        ("file,wnid,class\nval_9.JPEG,n0,0\n", "readable image"),
        ("file,wnid,class\n", "none"),
    ],
)
def test_wrong_lists_are_refused_and_cannot_point_outside(reduced, table, words):
    (reduced / "tiny-imagenet" / "labels.csv").write_text(table)
    with pytest.raises(BadInput, match=words):
        load("tiny-imagenet", "test", reduced)


def test_wrong_official_lists_are_refused(official):
    folder = official / "tiny-imagenet-200"
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn77\n")
    with pytest.raises(BadInput, match="class in wnids"):
        load("tiny-imagenet", "test", official)
    (folder / "val" / "val_annotations.txt").write_text("../val_0.JPEG\tn01\n")
    with pytest.raises(BadInput, match="plain file names"):
        load("tiny-imagenet", "test", official)
    (folder / "wnids.txt").write_text("..\n")
    with pytest.raises(BadInput, match="plain file names"):
        load("tiny-imagenet", "train", official)


def test_odd_sizes_and_missing_folders_are_refused(reduced, tmp_path_factory):
    picture(reduced / "tiny-imagenet" / "images" / "val_0.JPEG", 3, size=32)
    with pytest.raises(BadInput, match="64 x 64 pixels, got 32 x 32"):
        load("tiny-imagenet", "test", reduced)
    with pytest.raises(BadInput, match="leakgauge data fetch tiny-imagenet"):
        load("tiny-imagenet", "test", tmp_path_factory.mktemp("empty"))


def test_real_tiny_imagenet(real_data):
    test = load("tiny-imagenet", "test", real_data("tiny-imagenet"))
    assert test.labels.unique().tolist() == list(range(200))
