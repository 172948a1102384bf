import pytest
import torch

from leakgauge.data import load, verify
from leakgauge.errors import BadInput

ROW = "{age}, {work}, 100, HS-grad, 9, Divorced, Sales, Wife, White, Female, 0, 0, 40, {country}, {label}\n"


def row(age, work, label, country="Peru"):
    return ROW.format(age=age, work=work, label=label, country=country)


@pytest.fixture
def toy(tmp_path):
    folder = tmp_path / "adult"
    folder.mkdir()
    (folder / "adult.data").write_text(
        row(20, "Private", "<=50K") + row(60, "?", ">50K") + row(40, "Private", "<=50K") + "\n"
    )
    (folder / "adult.test").write_text(
        "|1x3 Cross validator\n" + row(30, "?", ">50K.") + row(90, "Private", "<=50K.", "Laos")
    )
    return tmp_path


def test_numbers_are_scaled_by_public_ranges_and_categories_are_one_hot(toy):
    train, test = load("adult", "train", toy), load("adult", "test", toy)
    # six numbers, then workclass {?, Private} and one category for each of the other seven columns
    assert train.spec.shape == test.spec.shape == (6 + 2 + 7,)
    assert train.labels.tolist() == [0, 1, 0]
    torch.testing.assert_close(train.inputs[:, 0], torch.tensor([0.0, 1.0, 0.5]))
    assert train.inputs[:, 6:8].tolist() == [[0, 1], [1, 0], [0, 1]]


def test_test_file_has_a_line_to_skip_dots_behind_labels_and_unseen_values(toy):
    test = load("adult", "test", toy)
    assert test.labels.tolist() == [1, 0]
    torch.testing.assert_close(test.inputs[:, 0], torch.tensor([0.25, 1.0]))  # 90 years: clipped
    assert test.inputs[:, -1].tolist() == [1, 0]  # Laos is no public category


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows"),
        ("1, 2, 3\n", "14 columns .* line 1"),
        (row(1, "Private", "<=50K") + row(1, "Private", "maybe"), "line 2"),
        (row("old", "Private", "<=50K"), "numbers in age"),
    ],
)
def test_damaged_files_are_named(toy, text, words):
    (toy / "adult" / "adult.test").write_text(text)
    with pytest.raises(BadInput, match=words):
        load("adult", "test", toy)


def test_missing_files_say_how_to_get_them(tmp_path):
    with pytest.raises(BadInput, match="leakgauge data fetch adult"):
        load("adult", "test", tmp_path)


def test_real_adult(real_data):
    root = real_data("adult")
    assert {check.status for check in verify("adult", root)} == {"ok"}
    train, test = load("adult", "train", root), load("adult", "test", root)
    assert (len(train), len(test)) == (32561, 16281)
    assert train.spec.shape == (108,)
    assert float(train.labels.float().mean()) == pytest.approx(0.2408, abs=1e-4)
    for data in (train, test):
        assert torch.equal(data.inputs[:, 6:].sum(1), torch.full((len(data),), 8.0))  # eight categories each
