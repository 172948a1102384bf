"""Records that are no pictures: what is shown of each kind, and which values are marked as right."""

import dataclasses

import pytest
import torch

from leakgauge.report.gallery import exhibits
from leakgauge.report.html import to_html
from leakgauge.report.samples import LINES, PICTURE, TABLE, TOKENS, panels, parts_of
from leakgauge.types import CATEGORIES, MASK, DataSpec, Part

NUMBERS = Part("numbers", (2,), low=-2.0, high=2.0)
COLUMNS = Part("columns", (2,), CATEGORIES, 3)


def spec(kind, *parts):
    return DataSpec("t", (sum(p.width for p in parts),), 2, kind, parts=parts)


def encoded(data, **values):
    return torch.cat([p.encode(torch.tensor([values[p.name]]))[0] for p in data.parts])


def test_a_table_shows_its_columns_in_their_own_units_and_marks_what_is_right():
    data = spec("tabular", NUMBERS, COLUMNS)
    true = encoded(data, numbers=[-1.5, 0.25], columns=[2, 0])
    found = encoded(data, numbers=[-1.46, 0.75], columns=[2, 1])
    numbers, columns = panels(true, found, data)
    assert numbers.kind == columns.kind == TABLE
    assert [(v.true, v.recovered, v.right) for v in numbers.cells] == [("−1.5", "−1.46", True), ("0.25", "0.75", False)]
    assert [(v.true, v.recovered, v.right) for v in columns.cells] == [("2", "2", True), ("0", "1", False)]
    assert (numbers.said, columns.said) == ("1 of 2 right", "1 of 2 right")


def test_text_is_a_row_of_tokens_and_its_mask_is_not_shown():
    data = spec("tokens", Part("ids", (5,), CATEGORIES, 9), Part("attention_mask", (5,), MASK))
    true = encoded(data, ids=[1, 2, 3, 4, 8], attention_mask=[1, 1, 1, 1, 0])
    (row,) = panels(true, true.roll(0), data)
    assert row.kind == TOKENS
    assert [v.recovered for v in row.cells] == ["1", "2", "3", "4", "8"]
    assert all(v.right for v in row.cells)


@pytest.mark.parametrize("shape", [(2, 40), (40, 2)])
def test_a_series_is_two_lines_for_each_channel(shape):
    data = DataSpec("t", shape, 2, "series")
    (lines,) = panels(torch.rand(shape), torch.rand(shape), data)
    assert lines.kind == LINES
    assert [len(c.true.split()) for c in lines.channels] == [40, 40]
    assert [c.said for c in lines.channels] == ["channel 1", "channel 2"]


def test_a_picture_beside_numbers_is_shown_as_one():
    data = spec("other", Part("image", (1, 6, 6)), NUMBERS)
    sample = torch.rand(data.shape)
    picture, numbers = panels(sample, sample, data)
    assert (picture.kind, numbers.kind) == (PICTURE, TABLE)
    assert picture.true.startswith("data:image/png")


def test_volumes_show_their_middle_plane_and_many_values_are_cut():
    (volume,) = panels(torch.rand(1, 5, 6, 7), torch.rand(1, 5, 6, 7), DataSpec("t", (1, 5, 6, 7), 2, "other"))
    assert volume.kind == PICTURE
    (row,) = panels(torch.rand(100), torch.rand(100), DataSpec("t", (100,), 2, "tabular"))
    assert (len(row.cells), row.left) == (16, 84)
    assert parts_of(DataSpec("t", (100,), 2, "tabular"))[0].width == 100


def test_without_the_truth_nothing_is_marked_and_what_is_lost_is_blank():
    data = spec("tabular", NUMBERS, COLUMNS)
    shown = panels(None, torch.full(data.shape, torch.nan), data)
    assert not any(v.right or v.true for panel in shown for v in panel.cells)


@pytest.mark.parametrize(
    "data",
    [
        spec("tabular", NUMBERS, COLUMNS),
        spec("tokens", Part("ids", (5,), CATEGORIES, 9)),
        DataSpec("t", (2, 9), 2, "series"),
        spec("other", Part("image", (1, 6, 6)), NUMBERS),
    ],
    ids=["table", "tokens", "series", "two inputs"],
)
def test_the_page_shows_records_of_every_kind(make, data):
    made = make("tabular", data.shape)
    report = dataclasses.replace(made.report, data=data)
    shown = exhibits(report, made.pictures)["none"][0].shown
    assert [item.title for item in shown] == ["best recovered", "worst recovered"]
    page = to_html(report, made.pictures)
    assert 'class="item record"' in page
    assert {"tokens": 'class="tokens"', "series": 'class="lines"', "other": "data:image/png"}.get(
        data.kind, 'class="features"'
    ) in page
