"""What the client's own samples show: few of them leave a gradient, or each unit answers to one class."""

from __future__ import annotations

import torch

from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import Found, caution
from leakgauge.engine.gradients import working_model
from leakgauge.models import input_affine

_FEWEST = 4  # samples
_LARGEST = 12.0  # powers of ten; beyond, float32 has nothing to compare with
_ERROR = 1e-4  # |p - onehot| below which a sample has learnt out and its gradient is rounding
_FEW = 8  # of so many samples one is a few
_UNITS = 8  # active ones; a share of fewer says nothing


@caution("send no update: it would be the gradient of few samples, whatever the size of the batch")
def dominant_sample(received: Received) -> Found:
    """Per hidden layer: powers of ten between the largest squared gradient of a sample and the median one.

    A sample that the model gets right has a small gradient in every model, so each is divided by the sample's error at
    the output first. What is left is how well the layers pass it on.
    """
    samples, model = received.samples, received.model
    if samples is None or model is None:
        return
    with torch.no_grad():
        probability = torch.softmax(working_model(model, "eval")(samples.inputs[0]), -1)
    truth = torch.nn.functional.one_hot(samples.labels[0], probability.shape[-1])
    error = torch.linalg.vector_norm(probability - truth, dim=-1).double()  # (N,)
    kept = error > _ERROR
    if int(kept.sum()) < _FEWEST:
        return
    for name, every in received.sample_gradients.items():
        squares = every[kept.to(every.device)]
        loud = squares / error[kept].square()
        if name == received.last or float(loud.max()) == 0:  # behind a last layer of zeros nothing is learnt yet
            continue
        tens = float(torch.log10(loud.max()) - torch.log10(loud.median().clamp(min=1e-300)))
        share = squares.max() / (squares.sum() - squares.max()).clamp(min=1e-30)
        evidence = (
            f"{int((loud < 1e-4 * loud.max()).sum())} of {len(loud)} samples leave next to no gradient, and the "
            f"largest one has {min(float(share), 1e12):.2g} times the energy of all others"
        )
        yield name, min(_LARGEST, tens), evidence


@caution("compare with another batch; if the same holds, send no update: it would be that of few samples")
def dominated_gradients(received: Received) -> Found:
    """Per layer: which share of the sum of all norms the loudest eighth of the samples has.

    The third of the three checks that Wang et al. 2023 give a client. Unlike `dominant_sample` it takes gradients as a
    client sums them, whatever a sample's error, so it also speaks of a trained model that gets most samples right.
    """
    for name, squares in received.sample_gradients.items():
        norms = squares.sqrt()
        if len(norms) >= _FEWEST and float(norms.sum()) != 0:
            few = -(-len(norms) // _FEW)
            share = float(torch.topk(norms, few).values.sum() / norms.sum())
            yield name, share, f"{few} of {len(norms)} samples have {share:.0%} of the sum of all gradient norms"


@caution("send no update of a small batch: a unit that one sample activates has that sample for a gradient")
def selective_units(received: Received) -> Found:
    """Of the units of a first linear layer that fire for any sample, the share that fires for one class alone."""
    samples, model = received.samples, received.model
    layer = next((layer for layer in received.layers if layer.name == received.first), None)
    if samples is None or model is None or layer is None or samples.inputs.shape[1] < _FEWEST:
        return
    inputs, labels = samples.inputs[0], samples.labels[0]
    present = labels.bincount().nonzero().flatten()  # classes
    affine = input_affine(model, inputs[:1])
    if affine is None or len(present) < 2:
        return
    scale, shift = affine
    bias = 0 if layer.bias is None else layer.bias
    fires = (inputs.flatten(1).to(scale) * scale + shift) @ layer.weight.T + bias > 0  # (N, units)
    classes = torch.stack([fires[labels == label].any(0) for label in present]).sum(0)  # (units,)
    active, alone = int((classes > 0).sum()), int((classes == 1).sum())
    if active >= _UNITS:
        evidence = f"{alone} of {active} active units fire for one class of {len(labels)} samples only"
        yield layer.name, alone / active, evidence
