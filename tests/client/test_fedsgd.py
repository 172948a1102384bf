"""The shared gradient equals a loop; METHODS G3."""

import torch
import torch.nn.functional as F

from leakgauge.client.fedsgd import fedsgd
from leakgauge.types import Client


def test_equals_a_loop_over_clients(model, victims):
    net, batch = model(), victims(3, 4)
    shared = fedsgd()(net, batch, (0, 1, 2))
    assert shared.kind == "gradient"
    assert shared.trials == 3
    assert not shared.buffers
    for t in range(3):
        loss = F.cross_entropy(net(batch.inputs[t]), batch.labels[t])
        for (name, _), slow in zip(
            net.named_parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True
        ):
            torch.testing.assert_close(shared.tensors[name][t], slow, rtol=1e-10, atol=1e-12)


def test_a_batchs_gradient_is_the_mean_of_its_samples(model, victims):
    net, batch = model(), victims(1, 5)
    whole = fedsgd()(net, batch, (0,))
    singles = [fedsgd()(net, type(batch)(batch.inputs[:, [i]], batch.labels[:, [i]]), (0,)) for i in range(5)]
    for name, tensor in whole.tensors.items():
        torch.testing.assert_close(tensor, torch.stack([s.tensors[name] for s in singles]).mean(0))


def test_seeds_do_not_matter_and_nothing_stays_attached(model, victims):
    net, batch = model(), victims()
    one, other = fedsgd()(net, batch, (0, 1)), fedsgd()(net, batch, (5, 6))
    assert all(torch.equal(one.tensors[n], other.tensors[n]) for n in one.tensors)
    assert not any(t.requires_grad for t in one.tensors.values())
    assert all(p.grad is None for p in net.parameters())


def test_batchnorm_in_train_mode_differs_from_eval(model, victims):
    net, batch = model("resnet20:width=2"), victims(2, 3)
    evaluated, trained = (fedsgd(Client(batchnorm=mode))(net, batch, (0, 1)) for mode in ("eval", "train"))
    assert any(not torch.allclose(evaluated.tensors[n], trained.tensors[n], rtol=0.1) for n in evaluated.tensors)


def test_with_all_logits_equal_the_bias_gradient_counts_the_labels(model, victims):
    """METHODS G3: grad b_i = 1/C - n_i/B, so n_i = B (1/C - grad b_i) exactly."""
    net, batch = model(), victims(4, 12)
    torch.nn.init.zeros_(net.fc2.weight)
    torch.nn.init.zeros_(net.fc2.bias)
    bias = fedsgd()(net, batch, (0, 1, 2, 3)).tensors["fc2.bias"]  # (T, C)
    counts = 12 * (1 / 10 - bias)
    truth = torch.stack([labels.bincount(minlength=10) for labels in batch.labels])
    torch.testing.assert_close(counts, truth.double(), rtol=0, atol=1e-12)
    assert (truth > 1).any()
