"""An update that is not what it is claimed to be shows it without its batch: by its last bias, or without marks."""

import dataclasses

import pytest
import torch

from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.client.summed import seen_step
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.recording.sanity import doubt_in, refuse_unmarked, sanity
from leakgauge.setup.plan import parse_chain
from leakgauge.types import Batch, Client, Fact, threat_model
from leakgauge.types.triage import CAUTION, INFO, WRONG


def seen(samples=2, local=None, defenses=(), model="mlp:hidden=32", factor=1.0, claimed=None, seed=0):
    digits, local = load("digits"), local or Client()
    net = load_model(model, digits.spec, seed)
    batch = draw_victims(digits, 3, samples, seed)
    update = chain(client_step(local), *defenses)(net, batch, (0, 1, 2)).map(lambda _, t: factor * t)
    facts = facts_about(net, batch, digits.spec, claimed or local, public_batch(load("digits", "train"), 64, 0))
    if claimed is not None:
        update = dataclasses.replace(update, kind="gradient" if claimed.kind == "fedsgd" else "weight_delta")
    return observe(net, update, threat_model("honest-but-curious"), facts)


def clue(observation, id):
    return next(c for c in sanity(observation) if c.id == id)


@pytest.mark.parametrize("samples", [1, 2, 8, 40])
@pytest.mark.parametrize("local", [Client(), Client(kind="fedavg", lr=0.1)])
def test_an_honest_update_passes(samples, local):
    for seed in range(3):
        observation = seen(samples, local, seed=seed)
        assert {c.severity for c in sanity(observation)} == {INFO}


def test_a_wrong_learning_rate_is_said_with_the_right_one():
    right = Client(kind="fedavg", lr=0.1)
    for claimed in (0.001, 10.0):
        found = clue(seen(2, right, claimed=Client(kind="fedavg", lr=claimed)), "claims")
        assert found.severity == WRONG
        assert f"{claimed:g} is claimed" in found.meaning
        rate = float(found.meaning.split("learning rate near ")[1].split(",")[0])
        assert 0.03 <= rate <= 0.3


@pytest.mark.parametrize(
    ("factor", "samples", "says"), [(-1.0, 2, "opposite sign"), (6.0, 6, "a sum over the 6 samples")]
)
def test_a_turned_sign_and_a_sum_are_named(factor, samples, says):
    found = clue(seen(samples, factor=factor), "claims")
    assert found.severity == WRONG
    assert says in found.meaning


def test_a_gradient_and_a_weight_difference_are_told_apart():
    found = clue(seen(2, claimed=Client(kind="fedavg", lr=0.01)), "claims")
    assert found.severity == WRONG
    assert "a gradient (say --local kind=fedsgd)" in found.meaning
    found = clue(seen(2, Client(kind="fedavg", lr=0.01), claimed=Client()), "claims")
    assert found.severity == WRONG
    assert "a weight difference at a rate near" in found.meaning


def test_noise_and_a_loss_without_its_softmax_show():
    assert clue(seen(defenses=(Gaussian(std=0.01),)), "loss").severity == CAUTION
    drowned = clue(seen(defenses=(Gaussian(std=1.0),)), "claims")
    assert drowned.severity == CAUTION, "noise is no proof of a wrong claim"
    forgot = clue(seen(local=Client(loss="nll-on-logits"), claimed=Client()), "loss")
    assert forgot.severity == WRONG
    assert "nll-on-logits" in forgot.meaning


def test_says_that_it_cannot_tell_where_it_cannot():
    observation = seen(40)
    assert "too many samples" in clue(observation, "claims").meaning
    only_first = {n: t for n, t in observation.update.tensors.items() if n.startswith("fc1")}
    partial = dataclasses.replace(observation, update=dataclasses.replace(observation.update, tensors=only_first))
    assert clue(partial, "claims").value == "not tested"
    assert observation.fact(Fact.NUM_SAMPLES) == 40


# --- the claimed optimiser -----------------------------------------------------------------------------

RULES = {
    "sgd": Client(kind="fedavg", lr=0.05, momentum=0.9),
    "adam": Client(kind="fedavg", lr=1e-3, optimizer="adam"),
    "adamw": Client(kind="fedavg", lr=1e-3, optimizer="adamw", weight_decay=0.01),
    "rmsprop": Client(kind="fedavg", lr=1e-3, optimizer="rmsprop"),
    "adagrad": Client(kind="fedavg", lr=1e-2, optimizer="adagrad"),
}


def doubt(true, claimed, epochs=1, model="mlp:hidden=32", samples=4):
    true, claimed = (dataclasses.replace(local, epochs=epochs) for local in (true, claimed))
    return doubt_in(sanity(seen(samples, true, model=model, claimed=claimed), claimed=True))


@pytest.mark.parametrize("epochs", [1, 5])
@pytest.mark.parametrize("model", ["mlp:hidden=32", "lenet-dlg:init=default"])
@pytest.mark.parametrize("rule", list(RULES))
def test_a_right_claim_raises_no_doubt(rule, model, epochs):
    assert doubt(RULES[rule], RULES[rule], epochs, model) == ""


@pytest.mark.parametrize("epochs", [1, 5])
@pytest.mark.parametrize("rule", ["adam", "adamw", "rmsprop", "adagrad"])
def test_an_adaptive_client_that_claims_sgd_is_doubted_and_the_other_way_round(rule, epochs):
    claim = RULES["sgd"]
    assert "the update is not what was claimed: the client divides gradients" in doubt(RULES[rule], claim, epochs)
    assert "the update is not what was claimed" in doubt(claim, RULES[rule], epochs)


def test_a_size_that_the_rate_does_not_give_is_doubted():
    assert "check the optimiser, its rate" in doubt(RULES["rmsprop"], RULES["adam"])
    assert "check the optimiser, its rate" in doubt(RULES["adam"], dataclasses.replace(RULES["adam"], lr=0.1))


def test_without_a_claim_to_hold_it_against_nothing_is_said_of_the_optimiser():
    assert "optimiser" not in {c.id for c in sanity(seen(4, RULES["adam"]))}


# --- the marks of a declared defense ------------------------------------------------------------------

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


def shared(applied, declared, samples=4, seed=1):
    digits = load("digits")
    inputs, labels = digits.take(torch.arange(seed, seed + samples))
    model = load_model("mlp:hidden=32,activation=relu,init=default", digits.spec, 0)
    chain = parse_chain(applied) if applied else ()
    batch = Batch(inputs[None], labels[None])
    update = seen_step(client_step(Client()), *chain)(prepared(model, *chain), batch, [seed])
    facts = facts_about(model, batch, digits.spec, Client(), None)
    model = prepared(model, *parse_chain(declared))
    return observe(model, update, threat_model("honest-but-curious"), facts)


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("samples", [1, 8])
def test_a_defense_that_was_applied_is_accepted(declared, samples):
    refuse_unmarked(shared(declared, declared, samples), parse_chain(declared), declared)


@pytest.mark.parametrize("declared", SHOWS)
def test_one_that_was_not_is_refused_with_what_is_missing(declared):
    with pytest.raises(BadInput, match=r"went through --defenses .* should be; the declared defense was not applied"):
        refuse_unmarked(shared("", declared), parse_chain(declared), declared)


def test_nothing_is_expected_where_nothing_was_declared():
    refuse_unmarked(shared("", "none"), (), "none")
