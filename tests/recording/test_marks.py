"""Without the batch an update still shows whether its declared defense was at work."""

import pytest
import torch

from leakgauge.client.chain import client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.client.summed import seen_step
from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.recording.marks import refuse_unmarked
from leakgauge.setup.plan import parse_chain
from leakgauge.types import Batch, LocalTraining, threat_model

DECLARED = (
    "gaussian:std=0.01",
    "laplace:scale=0.01",
    "dp-sgd:norm=1,sigma=1,q=0.01,rounds=100",
    "prune:share=0.9",
    "sign",
    "random-mask:share=0.5",
    "quantize:bits=4",
    "clip:norm=0.1",
    "soteria:share=0.5",
)
SHOWS = tuple(d for d in DECLARED if not d.startswith(("clip", "soteria")))  # the others leave no mark to go by


def seen(applied, declared, samples=4, seed=1):
    digits = load("digits")
    inputs, labels = digits.take(torch.arange(seed, seed + samples))
    model = load_model("mlp:hidden=32,activation=relu,init=default", digits.spec, 0)
    chain = parse_chain(applied) if applied else ()
    batch = Batch(inputs[None], labels[None])
    shared = seen_step(client_step(LocalTraining()), *chain)(prepared(model, *chain), batch, [seed])
    facts = facts_about(model, batch, digits.spec, LocalTraining(), None)
    model = prepared(model, *parse_chain(declared))
    return observe(model, shared, threat_model("honest-but-curious"), facts)


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("samples", [1, 8])
def test_a_defense_that_was_applied_is_believed(declared, samples):
    refuse_unmarked(seen(declared, declared, samples), parse_chain(declared), declared)


@pytest.mark.parametrize("declared", SHOWS)
def test_one_that_was_not_is_refused_with_what_is_missing(declared):
    with pytest.raises(BadInput, match=r"went through --defenses .* should be; the declared defense was not applied"):
        refuse_unmarked(seen("", declared), parse_chain(declared), declared)


def test_nothing_is_expected_where_nothing_was_declared():
    refuse_unmarked(seen("", "none"), (), "none")
