"""Everything a scenario names is loaded and every mistake found before anything runs."""

import dataclasses

import pytest
import torch
from safetensors.torch import save_file

from leakgauge.audit.run import run_audit
from leakgauge.data import load
from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.federation.rounds import accuracy, train
from leakgauge.generators.architecture import Architecture, Decoder
from leakgauge.generators.saving import Origin, save_generator
from leakgauge.models import load_model
from leakgauge.setup import setup as setup
from leakgauge.setup.setup import decoys_for, environment, load_setup, pick_device
from leakgauge.types import Batch, Client, Partition, Scenario, Training

TINY = Scenario(data="digits", model="mlp:hidden=8", trials=3, batch_size=2, seed=5)


SOME = Training(rounds=3, clients=2, batch_size=8)


@pytest.fixture(autouse=True)
def usual_precision():
    yield
    set_precision("float32")


def setup_of(**changes):
    return load_setup(dataclasses.replace(TINY, **changes), None, "cpu")


def key(**changes) -> str:
    return setup_of(**changes).key


def test_the_stage_holds_the_victims_and_public_data_of_the_other_split():
    setup = load_setup(TINY, None, "cpu")
    assert setup.batch.inputs.shape == (3, 2, 1, 8, 8)
    assert setup.public.trials == 1
    victims = {tuple(x.flatten().tolist()) for x in setup.batch.inputs.flatten(0, 1)}
    assert len(victims) == 6
    assert not victims & {tuple(x.flatten().tolist()) for x in setup.public.inputs[0]}


def test_the_victims_of_a_trial_do_not_depend_on_how_many_follow():
    few, many = (load_setup(dataclasses.replace(TINY, trials=t), None, "cpu").batch for t in (2, 4))
    assert torch.equal(few.inputs, many.inputs[:2])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "mpl"}, "did you mean 'mlp'"),
        ({"data": "digit"}, "did you mean 'digits'"),
        ({"metrics": ("mea",)}, "metric must be"),
        ({"trials": 10_000}, "trials"),
        ({"weights": "/nowhere.pt"}, "nowhere"),
        ({"training": Training(rounds=1, clients=1000)}, "clients x batch_size must be at most .* lower either"),
        ({"training": Training(rounds=5, lr=1e38, optimizer="sgd")}, "training: lr must be small enough"),
    ],
)
def test_a_mistake_is_found_before_anything_runs(values, message):
    with pytest.raises(BadInput, match=message):
        key(**values)


def test_naming_a_first_built_in_attack_or_defense_leaves_the_key_alone():
    assert key() == key(attacks=("dlg",), defenses=("prune",))


@pytest.mark.parametrize("change", [{"gate": "ssim=0.5"}, {"variants": "plain"}], ids=["gate", "variants"])
def test_what_no_cell_depends_on_leaves_the_key_alone(change):
    assert key() == key(**change)


def test_the_key_changes_with_what_a_cell_depends_on():
    assert key(attacks=("dlg",)) == key(attacks=("linear",), defenses=("prune",))
    others = [{"seed": 6}, {"trials": 2}, {"batch_size": 1}, {"model": "mlp:hidden=9"}, {"metrics": ("mae",)}]
    others += [{"threat_model": "eavesdropper"}, {"partition": Partition(kind="iid", clients=3)}]
    others += [{"training": SOME}, {"training": dataclasses.replace(SOME, rounds=4)}, {"precision": "float64"}]
    assert len({key(), *(key(**other) for other in others)}) == len(others) + 1


@pytest.mark.parametrize("field", ["attacks", "defenses"])
def test_the_key_changes_with_an_edit_to_the_users_own_attack_or_defense(tmp_path, field):
    path = tmp_path / "own.py"
    keys = set()
    for text in ("first", "second"):
        path.write_text(f"# {text}\nfrom leakgauge.defenses.prune import Prune as Mine\n")
        keys.add(key(**{field: (f"{path}:Mine",)}))
    assert len(keys) == 2


def test_the_key_sees_own_code_inside_a_chain(tmp_path):
    path = tmp_path / "own.py"
    keys = set()
    for text in ("first", "second"):
        path.write_text(f"# {text}\nfrom leakgauge.defenses.prune import Prune as Mine\n")
        keys.add(key(defenses=(f"prune+{path}:Mine:share=0.5",)))
    assert len(keys) == 2


def test_a_partition_gives_each_client_its_own_share():
    skewed = Partition(kind="classes", clients=5, classes=1)
    setup = load_setup(dataclasses.replace(TINY, trials=5, partition=skewed), None, "cpu")
    assert all(len(set(labels.tolist())) <= 2 for labels in setup.batch.labels)


# --- the model's state ------------------------------------------------------------------------------


def test_an_untrained_model_is_called_so():
    assert setup_of().state == "untrained"


def test_training_uses_the_train_split_by_the_scenarios_seed_and_is_told_with_its_accuracy():
    setup = setup_of(training=SOME)
    public, private = load("digits", "train"), load("digits", "test")
    model = train(load_model("mlp:hidden=8", public.spec, seed=5), public, SOME, seed=5)
    assert all(torch.equal(p, setup.model.state_dict()[n]) for n, p in model.state_dict().items())
    right = accuracy(model, private)
    assert setup.state == f"after 3 rounds of training, test accuracy {right:.2f} (450 samples)"
    assert not setup.model.training


@pytest.fixture
def trainings(monkeypatch):
    """The trainings that were really done."""
    done = []
    monkeypatch.setattr(setup, "_KEPT", {})
    monkeypatch.setattr(setup, "train", lambda *given: done.append(given[2:]) or train(*given))
    return done


def test_one_training_serves_all_scenarios_that_name_it(trainings):
    first = setup_of(training=SOME, model="resnet20:width=2")
    second = setup_of(training=SOME, model="resnet20:width=2", trials=2, precision="float64")
    assert len(trainings) == 1
    assert second.state == first.state
    assert not any(module.training for module in second.model.modules())
    for name, value in first.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name].to(value), value)


def test_another_training_is_another_model(trainings):
    setup_of(training=SOME)
    for changes in ({"seed": 6}, {"training": dataclasses.replace(SOME, lr=0.5)}, {"model": "mlp:hidden=9"}):
        setup_of(**{"training": SOME, **changes})
    assert len(trainings) == 4
    assert len(setup._KEPT) == 4
    setup_of(training=SOME)
    setup_of(training=SOME, seed=7)
    assert len(setup._KEPT) == 4, "the one that was used longest ago left"
    assert len(trainings) == 5
    setup_of(training=SOME)
    assert len(trainings) == 5


def test_a_model_that_somebody_changes_is_not_the_one_that_is_kept(trainings):
    next(setup_of(training=SOME).model.parameters()).detach().zero_()
    assert next(setup_of(training=SOME).model.parameters()).any()
    assert len(trainings) == 1


def test_what_goes_on_from_a_file_is_trained_again(trainings, tmp_path):
    save_file(load_model("mlp:hidden=8", load("digits", "train").spec, seed=1).state_dict(), tmp_path / "w.safetensors")
    for _ in range(2):
        setup_of(training=SOME, weights=str(tmp_path / "w.safetensors"))
    assert len(trainings) == 2


def test_training_goes_on_from_a_checkpoint(tmp_path):
    other = load_model("mlp:hidden=8", load("digits").spec, seed=99)
    path = str(tmp_path / "model.safetensors")
    save_file(other.state_dict(), path)
    assert setup_of(weights=path).state == f"weights from {path}"
    setup = setup_of(weights=path, training=dataclasses.replace(SOME, rounds=1))
    assert setup.state.startswith(f"weights from {path}, then 1 round of training, test accuracy 0.")
    model = train(other, load("digits", "train"), dataclasses.replace(SOME, rounds=1), seed=5)
    assert all(torch.equal(p, setup.model.state_dict()[n]) for n, p in model.state_dict().items())


def test_training_without_a_train_split_is_refused_and_says_what_to_do(tmp_path):
    path = tmp_path / "one.py"
    path.write_text("import torch\ndef one(): return torch.zeros(1, 1, 8, 8), torch.zeros(1, dtype=torch.long)\n")
    lonely = {"data": f"{path}:one", "trials": 1, "batch_size": 1}
    assert setup_of(**lonely).public is None
    with pytest.raises(BadInput, match=r"training: rounds must be 0 where .* has no train split.*--weights"):
        setup_of(**lonely, training=SOME)


def test_batchnorm_with_one_value_to_train_on_is_refused(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))\n"
    )
    assert setup_of(model=f"{path}:net", training=SOME).state.startswith("after 3 rounds")
    with pytest.raises(BadInput, match=r"training must be used with more than one value .* raise its batch_size"):
        setup_of(model=f"{path}:net", training=Training(rounds=1, clients=1, batch_size=1))


def test_a_mistake_elsewhere_is_found_before_the_model_is_trained(monkeypatch):
    monkeypatch.setattr("leakgauge.setup.setup.train", lambda *_: pytest.fail("trained first"))
    for wrong in ({"trials": 10_000}, {"metrics": ("mea",)}):
        with pytest.raises(BadInput):
            setup_of(training=SOME, **wrong)


# --- precision --------------------------------------------------------------------------------------


def test_float64_reaches_model_victims_public_data_and_update():
    setup = setup_of(precision="float64")
    update = setup.update((), setup.model)
    tensors = [*setup.model.parameters(), setup.batch.inputs, setup.public.inputs, *update.tensors.values()]
    assert {t.dtype for t in tensors} == {torch.float64}
    assert setup.batch.labels.dtype == torch.int64
    assert {p.dtype for p in setup_of().model.parameters()} == {torch.float32}


@pytest.mark.parametrize("changes", [{}, {"training": SOME}], ids=["untrained", "trained"])
def test_victims_and_model_are_the_same_in_every_precision(changes):
    """So that two runs differ by their arithmetic alone."""
    usual, exact = setup_of(**changes), setup_of(precision="float64", **changes)
    assert torch.equal(usual.batch.inputs.double(), exact.batch.inputs)
    for ours, theirs in zip(usual.model.parameters(), exact.model.parameters(), strict=True):
        assert torch.equal(ours.double(), theirs)


def test_tf32_is_set_for_the_process_and_taken_back_by_the_next_run():
    setup_of(precision="tf32")
    assert torch.backends.cudnn.allow_tf32
    setup_of()
    assert not torch.backends.cudnn.allow_tf32


def test_an_own_model_that_only_knows_float32_is_told_so(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = torch.nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        return self.fc(x.flatten(1).float())\n"
    )
    assert setup_of(model=f"{path}:Net").key
    with pytest.raises(BadInput, match="use --precision float32"):
        setup_of(model=f"{path}:Net", precision="float64")


@pytest.mark.parametrize(
    ("model", "attack"),
    [
        ("mlp:hidden=8", "linear"),
        ("lenet-cpl:filters=3", "cpl:steps=2"),
        ("lenet-dlg:filters=3", "inverting-gradients:steps=20"),
    ],
)
@pytest.mark.parametrize("rounds", [0, 2])
def test_attacks_defenses_and_scores_run_in_float64_and_resume_from_disk(tmp_path, model, attack, rounds):
    scenario = dataclasses.replace(
        TINY,
        model=model,
        attacks=(attack,),
        trials=2,
        batch_size=1,
        metrics=("mae",),
        precision="float64",
        defenses=("gaussian:std=0.001", "laplace:scale=0.001", "prune:share=0.5"),
        training=dataclasses.replace(SOME, rounds=rounds),
    )
    report, pictures = run_audit(scenario, out=tmp_path, device="cpu")
    assert not [row for row in report.summary if row.error or row.failed]
    assert pictures.true.dtype == torch.float64
    again, _ = run_audit(scenario, out=tmp_path, device="cpu")
    assert again.findings == report.findings, "finished cells are read back, not run anew"


def test_float64_recovers_what_float32_rounds_away():
    """The ratio of two gradients is exact but for rounding, so the error falls by many orders of magnitude."""
    worst = {}
    for precision in ("float32", "float64"):
        scenario = dataclasses.replace(TINY, attacks=("linear",), batch_size=1, precision=precision)
        report, _ = run_audit(scenario, device="cpu")
        worst[precision] = max(f.scores["mse"] for f in report.findings if f.attack == "linear")
    assert worst["float64"] < 1e-20
    assert worst["float64"] < 1e-6 * worst["float32"]


# --- where it runs ----------------------------------------------------------------------------------


def test_a_device_that_is_not_there_is_refused():
    assert pick_device("cpu") == torch.device("cpu")
    for name in ("gpu", "cuda:99", "mps", "tpu"):
        with pytest.raises(BadInput, match="use --device auto"):
            pick_device(name)


def test_the_environment_says_where_it_was_measured():
    found = environment(torch.device("cpu"))
    assert found["torch"] == torch.__version__
    assert found["device"] == "cpu"
    assert all(isinstance(v, str) and v for v in found.values())


# --- decoys and generators --------------------------------------------------------------------------


def test_decoys_have_the_victims_labels_and_other_contents():
    setup = load_setup(TINY, None, "cpu")
    decoys = setup.decoys()
    assert torch.equal(decoys.labels, setup.batch.labels)
    assert decoys.inputs.shape == setup.batch.inputs.shape
    public = {
        tuple(x.flatten().tolist()): int(y)
        for x, y in zip(*(t[0] for t in (setup.public.inputs, setup.public.labels)), strict=True)
    }
    for x, y in zip(decoys.inputs.flatten(0, 1), decoys.labels.flatten(), strict=True):
        assert public[tuple(x.flatten().tolist())] == y


def test_the_decoys_of_a_trial_are_its_own_and_none_is_used_twice_in_it():
    setup = load_setup(TINY, None, "cpu")
    same = Batch(setup.batch.inputs, torch.zeros_like(setup.batch.labels))  # two samples of one label
    together = decoys_for(same, setup.public, setup.scenario.seeds)
    alone = decoys_for(same.take([1]), setup.public, setup.scenario.seeds[1:2])
    assert torch.equal(together.inputs[[1]], alone.inputs)
    assert not torch.equal(together.inputs[:, 0], together.inputs[:, 1])


def test_without_public_samples_of_a_label_there_is_no_decoy():
    setup = load_setup(TINY, None, "cpu")
    with pytest.raises(NotApplicable, match="public samples"):
        decoys_for(setup.batch, None, setup.scenario.seeds)
    few = Batch(setup.public.inputs[:, :1], setup.public.labels[:, :1])
    with pytest.raises(NotApplicable, match="of label"):
        decoys_for(setup.batch, few, setup.scenario.seeds)


def test_a_generator_is_tried_before_anything_runs_and_its_contents_are_in_the_key(tmp_path):
    path = tmp_path / "g.safetensors"
    spec = f"ggl:generator={path}"
    with pytest.raises(BadInput, match="no such file"):
        key(attacks=(spec,))

    def write(shape, seed):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            net = Decoder(Architecture(shape, 10, 3, 4))
        save_generator(path, net, Origin("digits", "train", 1, 1, 0, "0"), torch.zeros(1, dtype=torch.int64))

    write((1, 4, 4), 0)
    with pytest.raises(BadInput, match=r"1x8x8 or larger.*got 1x4x4"):
        key(attacks=(spec,))
    write((1, 8, 8), 0)
    first = key(attacks=(spec,))
    write((1, 8, 8), 1)
    assert key(attacks=(spec,)) != first
    assert key(attacks=("ggl",)) == key()


ENDS_IN_LOG_SOFTMAX = """
from torch import nn

def make(input_shape, num_classes):
    size = input_shape[0] * input_shape[1] * input_shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, num_classes), nn.LogSoftmax(1))
"""


def test_nll_is_cross_entropy_in_two_parts_and_refused_of_a_model_without_the_first(tmp_path):
    (tmp_path / "net.py").write_text(ENDS_IN_LOG_SOFTMAX)
    local = Client(loss="nll")
    with pytest.raises(BadInput, match="ends in log_softmax"):
        load_setup(Scenario(data="digits", model="mlp", local=local), None, "cpu")
    own = f"{tmp_path}/net.py:make"
    scenario = Scenario(data="digits", model=own, local=local, attacks=("linear", "labels"), trials=3)
    report, _ = run_audit(scenario)
    assert [f.error for f in report.findings if f.attack in scenario.attacks] == [None] * 6
    linear = [f.scores["psnr"] for f in report.findings if f.attack == "linear"]
    assert min(linear) > 60
    assert [f.labels_proven for f in report.findings if f.attack == "labels"] == [1] * 3
