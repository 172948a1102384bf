"""The same settings, values and files give the same key, and any other ones another."""

from __future__ import annotations

import torch

from leakgauge.reading.keys import content_of, key_of, tensors_of


def test_a_key_names_its_parts_in_whatever_order_they_are_given():
    key = key_of(attack="dlg", trials=3, local={"lr": 0.1, "epochs": 2})
    assert key == key_of(trials=3, local={"epochs": 2, "lr": 0.1}, attack="dlg")
    others = [{"attack": "dlg", "trials": 3}, {"attack": "dlg", "trials": "3"}, {"attack": "dlg"}, {}]
    assert len({key, *(key_of(**parts) for parts in others)}) == 5


def test_a_key_stays_what_it_was_and_can_be_part_of_a_files_name():
    assert key_of(attack="dlg", trials=3) == "6497e3316d816611fea5"


def test_values_that_differ_in_one_bit_differ_in_their_hash():
    values = torch.arange(6.0)
    other = values.clone()
    other[5] = torch.nextafter(other[5], torch.tensor(9.0))
    assert tensors_of([values]) == tensors_of([values.clone()])
    assert tensors_of([values]) != tensors_of([other])
    assert tensors_of([values, other]) != tensors_of([other, values])


def test_how_values_lie_in_memory_and_whether_they_are_trained_does_not_matter():
    values = torch.arange(6.0).reshape(2, 3)
    turned = values.t().contiguous().t().requires_grad_()
    assert not turned.is_contiguous()
    assert tensors_of([values]) == tensors_of([turned])


def test_tensors_of_all_kinds_have_a_hash():
    kinds = [torch.tensor(1), torch.tensor([True]), torch.ones(2, dtype=torch.bfloat16), torch.zeros(0)]
    assert len({tensors_of([tensor]) for tensor in kinds}) == len(kinds)


def test_an_edit_of_the_users_own_file_is_seen(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("speed = 1")
    before = content_of(f"{own}:Mine")
    assert before == content_of(str(own)) != ""
    own.write_text("speed = 2")
    assert content_of(f"{own}:Mine") != before


def test_what_is_no_file_has_no_content():
    assert content_of(None) == content_of("") == content_of("dlg:steps=3") == content_of("/no/such/file.py:X") == ""
