"""Losses against torch's own."""

import math

import pytest
import torch
import torch.nn.functional as F

from leakgauge.engine.losses import IGNORED, cross_entropy, loss_of, nll_on_logits
from leakgauge.errors import BadInput
from leakgauge.types import Client

LOGITS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 3, 1, 1])
TEXTS = ("label_smoothing=0.1", "class_weights=1+2+0.5+3", "label_smoothing=0.2,class_weights=1+2+3+4")


def test_cross_entropy_of_labels_shares_and_sequences():
    torch.testing.assert_close(cross_entropy(LOGITS, LABELS), F.cross_entropy(LOGITS, LABELS))
    shares = torch.softmax(LOGITS.flip(0), -1)
    torch.testing.assert_close(cross_entropy(LOGITS, shares), F.cross_entropy(LOGITS, shares))
    words, tokens = LOGITS.view(2, 3, 4), LABELS.view(2, 3).clone()
    tokens[0, 1] = IGNORED
    torch.testing.assert_close(cross_entropy(words, tokens), F.cross_entropy(words.flatten(0, 1), tokens.flatten()))


@pytest.mark.parametrize("text", TEXTS)
def test_smoothing_and_weights_are_torchs(text):
    local = Client.from_text(text)
    weights = torch.tensor(local.weights_of_classes, dtype=torch.float64) if local.class_weights else None
    given = {"weight": weights, "label_smoothing": local.label_smoothing}
    torch.testing.assert_close(loss_of(local)(LOGITS, LABELS), F.cross_entropy(LOGITS, LABELS, **given))
    shares = torch.softmax(LOGITS.flip(0), -1)
    torch.testing.assert_close(loss_of(local)(LOGITS, shares), F.cross_entropy(LOGITS, shares, **given))


def test_losses_of_numbers_are_torchs():
    output, targets = LOGITS[:, :1], LOGITS[:, 1]
    for name, theirs in (("mse", F.mse_loss), ("l1", F.l1_loss), ("huber", F.huber_loss)):
        torch.testing.assert_close(loss_of(Client(loss=name))(output, targets), theirs(output[:, 0], targets))
    several = (LOGITS.flip(1) > 0).long()
    found = loss_of(Client(loss="bce"))(LOGITS, several)
    torch.testing.assert_close(found, F.binary_cross_entropy_with_logits(LOGITS, several.double()))
    log_p = torch.log_softmax(LOGITS, -1)
    torch.testing.assert_close(loss_of(Client(loss="nll"))(log_p, LABELS), F.nll_loss(log_p, LABELS))


def test_nll_on_logits_forgets_the_softmax():
    assert float(nll_on_logits(LOGITS, LABELS)) == pytest.approx(-float(LOGITS[range(6), LABELS].mean()))


def test_an_own_loss_is_called_and_must_be_one_number(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def good(o, y):\n    return (o[:, 0] - y).abs().mean()\ndef bad(o, y):\n    return o\n"
    )
    found = loss_of(Client(loss=f"{tmp_path}/mine.py:good"))(LOGITS, LABELS)
    torch.testing.assert_close(found, (LOGITS[:, 0] - LABELS).abs().mean())
    with pytest.raises(BadInput, match="one number"):
        loss_of(Client(loss=f"{tmp_path}/mine.py:bad"))(LOGITS, LABELS)


@pytest.mark.parametrize("text", ["loss=mze", "class_weights=1+x", "loss=mse,label_smoothing=0.1"])
def test_settings_that_make_no_loss_are_refused(text):
    with pytest.raises(BadInput):
        loss_of(Client.from_text(text))


def test_an_own_loss_gets_targets_of_the_type_of_the_output(tmp_path):
    (tmp_path / "mine.py").write_text("from torch.nn.functional import binary_cross_entropy as loss\n")
    own = loss_of(Client(kind="fedavg", loss=f"{tmp_path}/mine.py:loss"))
    output = torch.tensor([[0.25]], dtype=torch.float64)
    assert own(output, torch.ones(1, 1)).item() == pytest.approx(math.log(4))
