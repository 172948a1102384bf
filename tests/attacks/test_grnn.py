"""GRNN: the loss at the truth, the released term, the plain loop that it must equal, and what it recovers (A5, G6)."""

import dataclasses

import pytest
import torch
from torch.func import functional_call

from leakgauge.attacks.grnn import GRNN, absolute_variation, squared_variation
from leakgauge.client.fedsgd import fedsgd
from leakgauge.engine.losses import cross_entropy
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.types import Batch

OLD = {"scale": "mixed", "variation": "squared"}  # a sum of squares beside a mean, whose Wasserstein term is tiny


@pytest.mark.parametrize(
    ("fields", "variation"),
    [
        ({}, absolute_variation),
        ({"scale": "mean"}, absolute_variation),
        (OLD, squared_variation),
        ({"cosine": 1.0}, absolute_variation),
        ({"as_released": True}, squared_variation),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_where_the_gradients_agree_only_the_variation_is_left(scene, fields, variation):
    """The private pictures are what the generator starts with."""
    made = scene("lenet-dlg", told="honest-but-curious+labels", dtype=torch.float64)
    attack = GRNN(**fields, tv=0.5)
    generator = attack._generator(made.seen, (0, 1))
    z = generator.start((0, 1), "generator/0").double()
    batch = Batch(generator(z)[0], made.batch.labels)
    seen = dataclasses.replace(made.seen, update=fedsgd()(made.seen.model, batch, (0, 1)))
    value, slope = attack.problem(seen, (0, 1)).evaluator(torch.arange(2))(z)
    torch.testing.assert_close(value, 0.5 * variation(batch.inputs), rtol=1e-6, atol=1e-9)
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("samples", [1, 2])
def test_it_takes_the_steps_of_the_plain_loop(scene, samples):
    """torch.optim.RMSprop on one trial's weights, the loss written out again; labels from the generator."""
    made = scene("lenet-dlg", samples=samples, dtype=torch.float64)
    steps = 6
    attack = GRNN(steps=steps, as_released=True, lr=1e-3)
    found = attack(made.seen, (0, 1))
    for t in range(2):
        generator = attack._generator(made.seen.take([t]), (t,))
        z = generator.start((t,), "generator/0").double().requires_grad_()
        weights = {n: p.detach().requires_grad_() for n, p in made.seen.model.named_parameters()}
        optimiser = torch.optim.RMSprop([z], lr=1e-3, alpha=0.99, momentum=0.99)
        values = []
        for _ in range(steps + 1):
            pictures, logits = generator(z)
            outputs = functional_call(made.seen.model, weights, (pictures[0],))
            loss = cross_entropy(outputs, torch.softmax(logits[0], -1))
            mine = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            theirs = [made.seen.update.tensors[n][t] for n in weights]
            squares = torch.stack([(a - b).square().sum() for a, b in zip(mine, theirs, strict=True)]).sum()
            value = squares + squares.sqrt() + 1e-3 * squared_variation(pictures)[0]
            values.append(float(value.detach()))
            (z.grad,) = torch.autograd.grad(value, z)
            optimiser.step()
        assert float(found.objective[t]) == pytest.approx(min(values), rel=1e-6)


def test_a_digit_appears_and_its_label_is_found(scene):
    made = scene("lenet-dlg", trials=2)
    begun, later = (GRNN(steps=steps, lr=1e-3, momentum=0.9, **OLD)(made.seen, (0, 1)) for steps in (1, 200))
    assert (made.psnr(later) > made.psnr(begun) + 4).all()
    assert torch.equal(later.labels, made.batch.labels)


def test_known_labels_are_used(scene):
    made = scene("lenet-dlg", samples=3, told="honest-but-curious+labels")
    result = GRNN(steps=1)(made.seen, (0, 1))
    assert torch.equal(result.labels, made.batch.labels)
    assert result.inputs.shape == made.batch.inputs.shape


@pytest.mark.parametrize("schedule", ["in-turn", "halving"])
def test_the_better_of_two_generators_is_kept(scene, schedule):
    made = scene("lenet-dlg")
    one, two = (GRNN(steps=4, restarts=n, schedule=schedule)(made.seen, (0, 1)) for n in (1, 2))
    assert (two.objective <= one.objective + 1e-6).all()
    assert (two.evaluations > one.evaluations).all()


def test_tables_are_refused(scene):
    made = scene(data="breast-cancer")
    with pytest.raises(NotApplicable, match="pictures"):
        GRNN(steps=1)(made.seen, (0, 1))


def test_the_defaults_are_the_papers():
    attack = GRNN()
    assert (attack.lr, attack.momentum, attack.tv, attack.noise_width) == (1e-4, 0.99, 1e-3, 128)
    assert attack.decay == "none"
    assert (attack.mse, attack.wd, attack.cosine, attack.scale, attack.variation) == (1, 1, 0, "sum", "absolute")


def test_a_loss_that_compares_nothing_is_refused():
    with pytest.raises(BadInput, match="above 0 for one of them"):
        GRNN(mse=0, wd=0)
    assert GRNN(mse=0, wd=0, cosine=1).cosine == 1


@pytest.mark.parametrize("scale", ["mean", "mixed"])
def test_the_released_loss_has_one_scale(scale):
    with pytest.raises(BadInput, match="with as_released"):
        GRNN(as_released=True, scale=scale)


@pytest.mark.parametrize("field", ["mse", "wd", "cosine", "tv"])
def test_weights_below_zero_are_refused(field):
    with pytest.raises(BadInput, match=f"grnn: {field}"):
        GRNN(**{field: -1})


@pytest.mark.parametrize("field", ["scale", "variation"])
def test_other_words_for_scale_and_variation_are_refused(field):
    with pytest.raises(BadInput, match="one of"):
        GRNN(**{field: "loud"})
