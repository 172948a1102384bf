"""Only some layers are shared: their tensors pass, the others do not, and attacks that need those say so."""

import copy
import dataclasses

import pytest
import torch

from leakgauge import catalog
from leakgauge.attacks.idlg import IDLG
from leakgauge.audit.run import run_audit
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.client.partial import layers_of, only_shared, shared_names
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.matching.problem import inside
from leakgauge.models import load_model
from leakgauge.recording.own_update import setup_for
from leakgauge.setup.setup import load_setup
from leakgauge.types import Client, Scenario, TamperingServer, threat_model

SPEC = load("digits").spec
LENET = load_model("lenet-dlg:filters=4", SPEC, 0)


def seen(layers, model=LENET, samples=1, told="honest-but-curious"):
    batch = draw_victims(load("digits"), 2, samples, 0)
    facts = facts_about(model, batch, SPEC, Client(), public_batch(load("digits", "train"), 64, 0))
    return observe(model, fedsgd()(model, batch, (0, 1)), threat_model(told), facts, layers)


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("all", ["conv1", "conv2", "conv3", "fc"]),
        ("first:1", ["conv1"]),
        ("first:2", ["conv1", "conv2"]),
        ("last:2", ["conv3", "fc"]),
        ("fc+conv1", ["conv1", "fc"]),
    ],
)
def test_layers_are_counted_or_named_and_travel_whole(which, expected):
    names = shared_names(LENET, which)
    assert names == [f"{layer}.{part}" for layer in expected for part in ("weight", "bias")]
    assert list(seen(which).update.tensors) == names


def test_single_tensors_can_be_named():
    assert shared_names(LENET, "conv1.weight+fc.bias") == ["conv1.weight", "fc.bias"]


def test_frozen_parameters_are_no_part_of_an_update():
    model = load_model("lenet-dlg:filters=4", SPEC, 0)
    model.conv1.requires_grad_(False)
    assert list(layers_of(model)) == ["conv2", "conv3", "fc"]


def test_all_is_the_very_same_update():
    update = fedsgd()(LENET, draw_victims(load("digits"), 1, 1, 0), (0,))
    assert only_shared(update, LENET, "all") is update


@pytest.mark.parametrize("which", ["first:0", "first:9", "conv7", "", "last", "conv1+"])
def test_what_the_model_does_not_have_is_refused_in_one_line(which):
    with pytest.raises(BadInput, match="shared layers must be"):
        shared_names(LENET, which)


def test_an_update_with_the_shared_layers_alone_is_accepted_and_one_without_refused():
    whole = seen("all").update
    some = only_shared(whole, LENET, "last:2")
    told = threat_model("eavesdropper")
    assert observe(LENET, some, told, {}, "last:1").update.tensors.keys() == {"fc.weight", "fc.bias"}
    with pytest.raises(BadInput, match=r"missing 'conv1\.bias'"):
        observe(LENET, some, told, {})


def test_matching_some_layers_is_matching_without_the_others():
    """Muting does the same inside an attack that has everything."""
    attack, whole = IDLG(steps=4, restarts=1), seen("all")
    partial = attack(seen("conv1+fc"), (0, 1))
    problem = attack.problem(whole, (0, 1))
    left_out = inside(["conv2", "conv3"], problem.observed)
    muted = attack.solve(problem.without(left_out), (0, 1), lambda _: None)
    assert torch.equal(partial.inputs, muted.inputs)
    assert torch.equal(partial.objective, muted.objective)


def test_an_attack_without_the_tensor_it_needs_says_which():
    with pytest.raises(NotApplicable, match="'fc', which is frozen or not shared"):
        IDLG()(seen("first:3"), (0, 1))
    with pytest.raises(NotApplicable, match="not shared"):
        catalog.build("attacks", "linear")(seen("last:1", load_model("mlp:hidden=8", SPEC, 0)), (0, 1))


@pytest.mark.parametrize("layers", ["first:1", "last:1", "fc.weight"])
@pytest.mark.parametrize("name", catalog.find("attacks"))
def test_every_attack_works_or_refuses(name, layers):
    attack = catalog.get("attacks", name)()
    quick = {"steps": 2, "restarts": 1, "evaluations": 40, "warm_up": 0}
    for field, value in quick.items():
        attack = attack.with_fields(**{field: value}) or attack
    model = LENET
    refused = None
    try:
        if isinstance(attack, TamperingServer):
            model = attack.prepare(LENET, SPEC, public_batch(load("digits", "train"), 64, 0))
        result = attack(seen(layers, model, told="malicious-architecture"), (0, 1))
    except LeakgaugeError as error:
        refused = str(error)
    assert "\n" not in refused if refused else len(result.objective) == 2


def test_a_scenario_says_which_and_the_report_repeats_it():
    scenario = Scenario(
        model="mlp:hidden=8",
        data="digits",
        attacks=("linear",),
        trials=2,
        shared_layers="first:1",
        threat_model="honest-but-curious",
    )
    report, _ = run_audit(scenario)
    assert report.scenario.as_dict()["shared_layers"] == "first:1"
    (row,) = (r for r in report.summary if r.attack == "linear")
    assert "not shared" in (row.error or ""), "the label stands in the last layer"
    with pytest.raises(BadInput, match="shared_layers must be text"):
        Scenario(shared_layers=3)
    with pytest.raises(BadInput, match="shared layers must be one of"):
        run_audit(dataclasses.replace(scenario, shared_layers="fc9"))


# --- what a client trains -------------------------------------------------------------------------------------------

ADAPTED = '''
import torch
from torch import nn

class Low(nn.Module):
    """A frozen linear layer with a trained correction of rank 2."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.base, self.bias = nn.Linear(inputs, outputs), 0
        self.lora_a = nn.Parameter(torch.randn(inputs, 2) / 8)
        self.lora_b = nn.Parameter(torch.randn(2, outputs) / 8)

    def forward(self, x):
        return self.base(x) + x @ self.lora_a @ self.lora_b

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.first, self.second = Low(64, 12), Low(12, 8)
        self.head = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x.flatten(1))))))
'''


@pytest.mark.parametrize("steps", ["", "kind=fedavg,epochs=2,lr=0.5,momentum=0.9,"])
@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        ("last:1", ["head.weight", "head.bias"]),
        ("*lora_*", ["first.lora_a", "first.lora_b", "second.lora_a", "second.lora_b"]),
        ("*lora_b+head", ["first.lora_b", "second.lora_b", "head.weight", "head.bias"]),
    ],
)
def test_only_what_is_trained_moves_and_is_shared(tmp_path, trained, expected, steps):
    (tmp_path / "net.py").write_text(ADAPTED)
    local = Client.from_text(f"{steps}trained={trained}")
    setup = load_setup(Scenario(data="digits", model=f"{tmp_path}/net.py:Net", local=local, trials=2), None, "cpu")
    update = setup.update((), setup.model)
    assert list(update.tensors) == expected
    whole = load_setup(Scenario(data="digits", model=f"{tmp_path}/net.py:Net", trials=2), None, "cpu")
    if not steps:
        for name, gradient in whole.update((), whole.model).tensors.items():
            if name in expected:
                torch.testing.assert_close(update.tensors[name], gradient)
        return
    for trial in range(2):  # torch's own optimiser on these parameters alone
        worker = copy.deepcopy(whole.model)
        named = {n: p for n, p in worker.named_parameters() if n in expected}
        optimiser = torch.optim.SGD(named.values(), lr=0.5, momentum=0.9)
        for _ in range(2):
            optimiser.zero_grad()
            logits = worker(setup.batch.inputs[trial])
            torch.nn.functional.cross_entropy(logits, setup.batch.labels[trial]).backward()
            optimiser.step()
        for name, p in named.items():
            torch.testing.assert_close(update.tensors[name][trial], p.detach() - whole.model.get_parameter(name))


def test_a_head_that_is_trained_alone_gives_its_labels_away_and_no_picture(tmp_path):
    scenario = Scenario(data="digits", model="mlp", local=Client(trained="last:1"), attacks=("idlg:steps=5",), trials=4)
    report, _ = run_audit(scenario, out=tmp_path)
    labels = [f.labels_proven for f in report.findings if f.attack.startswith("idlg")]
    assert labels == [1] * 4
    setup = load_setup(scenario, None, "cpu")
    facts = setup.facts(setup.model, setup.batch)
    observation = observe(setup.model, setup.update((), setup.model), setup.threat_model, facts)
    with pytest.raises(NotApplicable, match="frozen or not shared"):
        catalog.build("attacks", "linear")(observation, (0,) * 4)


@pytest.mark.parametrize("trained", ["last:9", "first:0", "heads", "*lora*"])
def test_training_what_does_not_exist_is_refused(trained):
    with pytest.raises(BadInput, match="local: trained"):
        load_setup(Scenario(data="digits", local=Client(trained=trained)), None, "cpu")


def test_an_update_of_frozen_layers_is_refused(tmp_path):
    update = fedsgd()(LENET, draw_victims(load("digits"), 1, 1, 0), (0,))
    torch.save({n: t[0] for n, t in update.tensors.items()}, tmp_path / "update.pt")
    scenario = Scenario(
        model="lenet-dlg:filters=4",
        update=str(tmp_path / "update.pt"),
        blind=True,
        local=Client(trained="last:1"),
        data="digits",
    )
    with pytest.raises(BadInput, match="frozen"):
        setup_for(scenario, None, "cpu")
