"""Losses against torch's own."""

import math

import pytest
import torch
import torch.nn.functional as F

from leakgauge.engine.losses import IGNORED, averaged_over, cross_entropy, loss_of, nll_on_logits
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


# --- sequences ------------------------------------------------------------------------------------------------------

STEPS, CLASSES = 7, 5
SPOKEN = torch.tensor([[1, 2, 3], [2, 2, -1], [4, -1, -1], [3, 3, 3], [-1, -1, -1]])


def torchs_ctc(logits, targets, reduction="mean"):
    lengths = (targets >= 0).sum(1)
    log_p = torch.log_softmax(logits, -1).transpose(0, 1)
    steps = torch.full((len(logits),), logits.shape[1])
    return F.ctc_loss(log_p, targets.clamp_min(0), steps, lengths, reduction=reduction)


def heard(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(len(SPOKEN), STEPS, CLASSES, generator=g, dtype=torch.float64, requires_grad=True)


def test_ctc_and_its_gradient_are_torchs():
    logits, ctc = heard(), loss_of(Client(loss="ctc"))
    torch.testing.assert_close(ctc(logits, SPOKEN), torchs_ctc(logits, SPOKEN), rtol=1e-12, atol=0)
    for i in range(len(SPOKEN)):
        one = logits[i : i + 1]
        torch.testing.assert_close(ctc(one, SPOKEN[i : i + 1]), torchs_ctc(one, SPOKEN[i : i + 1]))
    mine, theirs = (torch.autograd.grad(f(logits, SPOKEN), logits)[0] for f in (ctc, torchs_ctc))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-14)
    log_p = torch.log_softmax(logits, -1)
    torch.testing.assert_close(ctc(log_p, SPOKEN), ctc(logits, SPOKEN))  # log-probabilities are logits too


def test_ctc_can_be_differentiated_twice_which_torchs_cannot():
    ctc, small = loss_of(Client(loss="ctc")), heard()[:, :4].detach().requires_grad_()
    kept = SPOKEN[:3]
    assert torch.autograd.gradgradcheck(lambda x: ctc(x, kept), small[:3].detach().requires_grad_())


def test_ctc_of_shares_that_are_certain_is_that_of_labels():
    logits, ctc = heard(1), loss_of(Client(loss="ctc"))
    shares = F.one_hot(SPOKEN.clamp_min(0), CLASSES).double() * (SPOKEN >= 0)[..., None]
    torch.testing.assert_close(ctc(logits, shares), ctc(logits, SPOKEN))
    searched = torch.softmax(torch.randn(len(SPOKEN), 3, CLASSES, dtype=torch.float64), -1).requires_grad_()
    (slope,) = torch.autograd.grad(ctc(logits, searched), searched)
    assert bool(torch.isfinite(slope).all())
    assert bool(slope.any())


def test_ctc_with_more_labels_than_steps_is_huge_and_has_finite_slopes():
    logits, ctc = heard(), loss_of(Client(loss="ctc"))
    cost = ctc(logits[:4, :2], SPOKEN[:4])
    assert 1e28 < float(cost.detach()) < torch.inf
    assert bool(torch.isfinite(torch.autograd.grad(cost, logits)[0]).all())


@pytest.mark.parametrize("name", ["cross-entropy", "nll"])
def test_classes_of_sequences_and_pictures_may_stand_on_axis_1(name):
    logits = torch.randn(2, CLASSES, 3, 4, dtype=torch.float64)
    labels = torch.randint(CLASSES, (2, 3, 4))
    labels[0, 1, 2] = IGNORED
    given = torch.log_softmax(logits, 1) if name == "nll" else logits
    theirs = F.nll_loss if name == "nll" else F.cross_entropy
    torch.testing.assert_close(loss_of(Client(loss=name))(given, labels), theirs(given, labels))
    torch.testing.assert_close(loss_of(Client(loss=name))(given.movedim(1, -1), labels), theirs(given, labels))


@pytest.mark.parametrize("text", TEXTS)
def test_smoothing_and_weights_of_sequences_are_torchs(text):
    local = Client.from_text(text)
    weights = torch.tensor(local.weights_of_classes, dtype=torch.float64) if local.class_weights else None
    logits, labels = torch.randn(3, 5, 4, dtype=torch.float64), torch.randint(4, (3, 5))
    labels[0, :3] = IGNORED
    expected = F.cross_entropy(logits.transpose(1, 2), labels, weight=weights, label_smoothing=local.label_smoothing)
    torch.testing.assert_close(loss_of(local)(logits, labels), expected)


def test_an_own_loss_gets_sequences_as_they_are(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\ndef loss(o, y):\n"
        "    return torch.nn.functional.cross_entropy(o.flatten(0, 1), y.flatten(), ignore_index=-100)\n"
    )
    logits, labels = torch.randn(3, 5, 4), torch.randint(4, (3, 5))
    labels[:, -1] = IGNORED
    own = loss_of(Client(loss=f"{tmp_path}/mine.py:loss"))
    torch.testing.assert_close(own(logits, labels), cross_entropy(logits, labels))


def in_parts(loss, output, targets):
    """The mean over two parts of a batch, weighed by what each counts."""
    parts = [(output[:2], targets[:2]), (output[2:], targets[2:])]
    counts = [float(averaged_over(loss, y[None])) for _, y in parts]
    assert sum(counts) == pytest.approx(float(averaged_over(loss, targets[None])))
    return sum(c * loss(o, y) for c, (o, y) in zip(counts, parts, strict=True)) / sum(counts)


def test_every_loss_is_the_weighed_mean_over_parts_of_a_batch():
    for text in TEXTS:
        loss = loss_of(Client.from_text(text))
        torch.testing.assert_close(in_parts(loss, LOGITS, LABELS), loss(LOGITS, LABELS))
        shares = torch.softmax(LOGITS, -1)
        torch.testing.assert_close(in_parts(loss, LOGITS, shares), loss(LOGITS, shares))
    words, tokens = LOGITS.view(3, 2, 4), LABELS.view(3, 2).clone()
    tokens[0, 1] = IGNORED
    for text in ("loss=cross-entropy", "loss=nll", *TEXTS):
        loss = loss_of(Client.from_text(text))
        torch.testing.assert_close(in_parts(loss, words, tokens), loss(words, tokens))
    for name in ("mse", "l1", "huber", "bce"):
        loss = loss_of(Client(loss=name))
        torch.testing.assert_close(in_parts(loss, LOGITS, (LOGITS > 0).long()), loss(LOGITS, (LOGITS > 0).long()))
    ctc = loss_of(Client(loss="ctc"))
    torch.testing.assert_close(in_parts(ctc, heard(), SPOKEN), ctc(heard(), SPOKEN))


def test_of_an_own_loss_nobody_knows_what_it_divides_by(tmp_path):
    (tmp_path / "mine.py").write_text("def loss(o, y):\n    return o.mean()\n")
    assert averaged_over(loss_of(Client(loss=f"{tmp_path}/mine.py:loss")), LABELS[None]) is None


def test_an_own_loss_gets_targets_of_the_type_of_the_output(tmp_path):
    (tmp_path / "mine.py").write_text("from torch.nn.functional import binary_cross_entropy as loss\n")
    own = loss_of(Client(kind="fedavg", loss=f"{tmp_path}/mine.py:loss"))
    output = torch.tensor([[0.25]], dtype=torch.float64)
    assert own(output, torch.ones(1, 1)).item() == pytest.approx(math.log(4))
