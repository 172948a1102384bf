"""Who carries a property, and batches with and without it."""

import pytest
import torch

from leakgauge.data import Dataset
from leakgauge.errors import BadInput
from leakgauge.setup.properties import Pool, parse_property
from leakgauge.types import DataSpec


def pictures(count=40, classes=4, channels=3):
    """Picture i has class i % classes and the brightness i / count throughout."""
    spec = DataSpec("pictures", (channels, 8, 8), classes, "image")
    inputs = (torch.arange(count) / count).reshape(-1, 1, 1, 1).expand(count, *spec.shape)
    return Dataset(spec, inputs.clone(), torch.arange(count) % classes)


def brightness(batch):
    return batch.inputs.flatten(2).mean(2)


def test_a_class_is_carried_by_its_samples():
    data = pictures()
    assert torch.equal(parse_property("class:2", data).carried(data), data.labels == 2)


def test_bright_is_what_is_brighter_than_half_of_the_public_samples():
    public = pictures()
    carried = parse_property("bright", public).carried(public)
    assert carried.sum() == 20
    assert carried[20:].all()


@pytest.mark.parametrize(("channels", "corner"), [(3, [1.0, 0, 0]), (1, [1.0])])
def test_a_patch_is_stamped_in_the_corner_and_nowhere_else(channels, corner):
    prop = parse_property("patch:2", pictures(channels=channels))
    before = torch.full((1, channels, 8, 8), 0.25)
    after = prop.stamp(before)
    assert (after[0, :, :2, :2] == torch.tensor(corner).reshape(-1, 1, 1)).all()
    assert (after != before).sum() == channels * 4
    assert (before == 0.25).all(), "the private sample itself stays as it is"


def test_a_patch_is_a_quarter_of_the_side_unless_told():
    assert parse_property("patch", pictures()).size == 2


@pytest.mark.parametrize("text", ["class:0", "bright", "patch"])
def test_a_batch_has_just_as_many_carriers_as_asked_and_no_sample_twice(text):
    data = pictures()
    pool = Pool.of(data, parse_property(text, data))
    batch = pool.draw([0, 3], 10, [5, 6], "role")
    assert batch.inputs.shape == (2, 10, 3, 8, 8)
    if text == "patch":
        marked = (batch.inputs[:, :, 0, 0, 0] == 1) & (batch.inputs[:, :, 1, 0, 0] == 0)
        assert marked.sum(1).tolist() == [0, 3]
        assert len(set(batch.inputs[1, :, 0, 7, 7].tolist())) == 10
        return
    seen = batch.labels == 0 if text == "class:0" else brightness(batch) > 0.49
    assert seen.sum(1).tolist() == [0, 3]
    assert len(set(brightness(batch)[1].tolist())) == 10


def test_a_batch_depends_on_its_own_seed_alone():
    data = pictures()
    pool = Pool.of(data, parse_property("class:1", data))
    both, alone = pool.draw([2, 4], 8, [7, 8], "role"), pool.draw([4], 8, [8], "role")
    assert torch.equal(both.inputs[1], alone.inputs[0])
    assert torch.equal(both.labels[1], alone.labels[0])
    assert not torch.equal(pool.draw([4], 8, [8], "another role").labels, alone.labels)


def test_carriers_stand_anywhere_in_the_batch():
    data = pictures()
    pool = Pool.of(data, parse_property("class:1", data))
    places = (pool.draw([1] * 40, 4, range(40), "role").labels == 1).sum(0)
    assert (places > 0).all()


def test_too_few_carriers_are_repeated_only_where_that_is_allowed():
    data = pictures()
    pool = Pool.of(data, parse_property("class:1", data))  # ten of them
    batch = pool.draw([14], 16, [0], "role", repeat=True)
    assert (batch.labels == 1).sum() == 14
    with pytest.raises(BadInput, match="14 or more that carry it, got 10"):
        pool.check("victims' samples", 14, 1)
    with pytest.raises(BadInput, match="31 or more that do not, got 30"):
        pool.check("victims' samples", 1, 31)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dark", "bright, class:K, patch"),
        ("class:4", "from 0 to 3"),
        ("class:", "from 0 to 3"),
        ("class", "class:K"),
        ("patch:9", "from 1 to 8"),
        ("patch:x", "from 1 to 8"),
        ("bright:2", "bright"),
    ],
)
def test_what_is_no_property_is_refused(text, said):
    with pytest.raises(BadInput, match=said):
        parse_property(text, pictures())


@pytest.mark.parametrize("text", ["bright", "patch"])
def test_a_table_has_no_brightness_and_no_corner(text):
    table = Dataset(DataSpec("table", (4,), 2, "tabular"), torch.rand(6, 4), torch.arange(6) % 2)
    with pytest.raises(BadInput, match="pictures"):
        parse_property(text, table)
    assert parse_property("class:1", table).carried(table).sum() == 3
