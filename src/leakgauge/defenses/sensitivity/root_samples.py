"""The root samples by which the slices of `sensitivity` are cut: public, and the same for everybody.

Three kinds. *Made up*: smooth random pictures from a public seed, each label in turn; nobody's, and no file is needed.
*Real*: samples of a named data set's public split. *Distilled* from those (Wang et al. 2018, "Dataset distillation"):
samples on which one step of gradient descent, from the model at hand, lowers the loss on real samples. They are
searched for from made-up ones; the labels stay.

`bias` is the share of the samples that have label 0, the others are spread evenly over the other labels; 0 gives each
label its turn. An even set of ten labels has bias 0.1.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leakgauge.data import load
from leakgauge.engine.gradients import parameters_of, working_model
from leakgauge.engine.randomness import generator, normal, uniform
from leakgauge.errors import BadInput, NotApplicable

ROOTS = ("made-up", "real", "distilled")
_COARSE = 4  # made-up pictures vary over this many cells per side
_PUBLIC_SEED = 0
_REAL = 256  # samples on which the step from distilled ones is tried
_STEPS, _RATE = 40, 0.05  # of the search for distilled samples, by Adam
_LEARNING_RATE = 0.1  # of the step on them, to begin with; it is searched for too


def check_roots(roots: str, root_data: str) -> None:
    """Raises where the two do not fit together."""
    if roots != "made-up" and not root_data:
        raise BadInput(
            "sensitivity: root_data",
            allowed=f"the name of a data set with roots={roots}",
            got="nothing",
            do=f"write roots={roots},root_data=mnist, for example",
        )
    if roots == "made-up" and root_data:
        raise BadInput(
            "sensitivity: root_data",
            allowed="left out with roots=made-up, which needs no data",
            got=repr(root_data),
            do="leave it out, or write roots=real",
        )


def root_samples(
    model: nn.Module, shape: Sequence[int], count: int, roots: str = "made-up", root_data: str = "", bias: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(K, *shape) in [0, 1] and (K,) labels, on the model's device."""
    like = next(iter(parameters_of(model).values()), None)
    if like is None:
        raise NotApplicable("sensitivity needs a model with trainable parameters; this one has none")
    worker = working_model(model, "eval")
    with torch.no_grad():
        classes = worker(torch.zeros(1, *shape).to(like)).shape[-1]
    labels = labels_of(count, classes, bias).to(like.device)
    if roots == "real":
        inputs, labels = _real(root_data, count, bias, tuple(shape))
        return inputs.to(like), labels.to(like.device)
    made_up = _made_up(shape, count).to(like)
    if roots == "made-up":
        return made_up, labels
    real, real_labels = _real(root_data, _REAL, 0.0, tuple(shape))
    return distilled(worker, made_up, labels, real.to(like), real_labels.to(like.device)), labels


def labels_of(count: int, classes: int, bias: float) -> Tensor:
    """(K,) of them round(bias x K) zeros and the others each other label in turn; without a bias each label in turn."""
    if not bias or classes < 2:
        return torch.arange(count) % classes
    first = round(bias * count)
    return torch.cat((torch.zeros(first, dtype=torch.int64), 1 + torch.arange(count - first) % (classes - 1)))


def distilled(model: nn.Module, inputs: Tensor, labels: Tensor, real: Tensor, real_labels: Tensor) -> Tensor:
    """`inputs` (K, *shape) moved so that one step on them lowers the loss on real samples; they stay in [0, 1]."""
    found = inputs.clone().requires_grad_()
    rate = torch.full((), _LEARNING_RATE, dtype=inputs.dtype, device=inputs.device).log().requires_grad_()
    search = torch.optim.Adam([found, rate], lr=_RATE)
    for _ in range(_STEPS):
        loss = loss_after_step(model, found, labels, rate.exp(), real, real_labels)
        found.grad, rate.grad = torch.autograd.grad(loss, [found, rate])
        search.step()
        with torch.no_grad():
            found.clamp_(0, 1)
    return found.detach()


def loss_after_step(
    model: nn.Module, inputs: Tensor, labels: Tensor, rate: Tensor, real: Tensor, real_labels: Tensor
) -> Tensor:
    """() the loss on real samples of the model after one step of this rate on `inputs`; differentiable in both."""
    before = {n: p.detach().requires_grad_() for n, p in parameters_of(model).items()}
    loss = nn.functional.cross_entropy(torch.func.functional_call(model, before, (inputs,)), labels)
    slopes = torch.autograd.grad(loss, list(before.values()), create_graph=True)
    after = {n: p - rate * g for (n, p), g in zip(before.items(), slopes, strict=True)}
    return nn.functional.cross_entropy(torch.func.functional_call(model, after, (real,)), real_labels)


def _made_up(shape: Sequence[int], count: int) -> Tensor:
    """(K, *shape), the first ones the same however many there are."""
    seeds = range(count)
    inputs = 0.5 + 0.1 * normal(seeds, "sensitivity/root", shape)
    if len(shape) == 3:
        coarse = uniform(seeds, "sensitivity/coarse", (shape[0], _COARSE, _COARSE))
        inputs = inputs - 0.5 + nn.functional.interpolate(coarse, tuple(shape[1:]), mode="bilinear")
    return inputs.clamp(0, 1)


@functools.lru_cache(maxsize=8)
def _real(data: str, count: int, bias: float, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """So many samples of the public split, drawn once by a public seed."""
    samples = load(data, "train")
    if samples.spec.shape != shape:
        raise BadInput(
            "sensitivity: root_data",
            allowed=f"a data set of samples of shape {shape}, as the model takes them",
            got=f"{data}, {samples.spec.shape}",
            do="choose root samples that look like the clients' own",
        )
    order = torch.randperm(len(samples), generator=generator(_PUBLIC_SEED, "sensitivity/real"))
    wanted = labels_of(count, samples.spec.classes, bias)
    if bias:
        places = {label: iter(order[samples.labels[order] == label].tolist()) for label in set(wanted.tolist())}
        found = [next(places[label], None) for label in wanted.tolist()]
        chosen = [place for place in found if place is not None]
    else:
        chosen = order[:count].tolist()
    if len(chosen) < count:
        raise BadInput(
            "sensitivity: root",
            allowed=f"at most {len(chosen)} samples of {data} with bias {bias:g}",
            got=count,
            do="choose fewer root samples, a smaller bias or larger data",
        )
    return samples.take(torch.tensor(chosen))
