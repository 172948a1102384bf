"""A sample is known again in any precision; another one is not."""

import torch

from leakgauge.generators.fingerprints import fingerprints


def test_precision_and_bytes_do_not_matter_and_contents_do():
    bytes_ = torch.randint(0, 256, (5, 1, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    single, double = bytes_.float() / 255, bytes_.double() / 255
    assert torch.equal(fingerprints(single), fingerprints(double))
    assert len(set(fingerprints(single).tolist())) == 5
    changed = single.clone()
    changed[2, 0, 0, 0] = (changed[2, 0, 0, 0] + 0.5) % 1
    same = fingerprints(changed) == fingerprints(single)
    assert same.tolist() == [True, True, False, True, True]
