"""Everything a scenario names is loaded and every mistake found before anything runs."""

import dataclasses

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.stage import environment, pick_device, set_stage
from leakgauge.types import Partition, Scenario

TINY = Scenario(data="digits", model="mlp:hidden=8", trials=3, batch_size=2, seed=5)


def key(**changes) -> str:
    return set_stage(dataclasses.replace(TINY, **changes), None, "cpu").key


def test_the_stage_holds_the_victims_and_public_data_of_the_other_split():
    stage = set_stage(TINY, None, "cpu")
    assert stage.batch.inputs.shape == (3, 2, 1, 8, 8)
    assert stage.public.trials == 1
    victims = {tuple(x.flatten().tolist()) for x in stage.batch.inputs.flatten(0, 1)}
    assert len(victims) == 6
    assert not victims & {tuple(x.flatten().tolist()) for x in stage.public.inputs[0]}


def test_the_victims_of_a_trial_do_not_depend_on_how_many_follow():
    few, many = (set_stage(dataclasses.replace(TINY, trials=t), None, "cpu").batch for t in (2, 4))
    assert torch.equal(few.inputs, many.inputs[:2])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "mpl"}, "did you mean 'mlp'"),
        ({"data": "digit"}, "did you mean 'digits'"),
        ({"metrics": ("mea",)}, "metric must be"),
        ({"trials": 10_000}, "trials"),
        ({"weights": "/nowhere.pt"}, "nowhere"),
    ],
)
def test_a_mistake_is_found_before_anything_runs(values, message):
    with pytest.raises(BadInput, match=message):
        key(**values)


def test_naming_a_first_built_in_attack_or_defence_leaves_the_key_alone():
    assert key() == key(attacks=("dlg",), defenses=("prune",))


@pytest.mark.parametrize("change", [{"gate": "ssim=0.5"}, {"variants": "plain"}], ids=["gate", "variants"])
def test_what_no_cell_depends_on_leaves_the_key_alone(change):
    assert key() == key(**change)


def test_the_key_changes_with_what_a_cell_depends_on():
    assert key(attacks=("dlg",)) == key(attacks=("linear",), defenses=("prune",))
    others = [{"seed": 6}, {"trials": 2}, {"batch_size": 1}, {"model": "mlp:hidden=9"}, {"metrics": ("mae",)}]
    others += [{"threat_model": "eavesdropper"}, {"partition": Partition(kind="iid", clients=3)}]
    assert len({key(), *(key(**other) for other in others)}) == len(others) + 1


@pytest.mark.parametrize("field", ["attacks", "defenses"])
def test_the_key_changes_with_an_edit_to_the_users_own_attack_or_defence(tmp_path, field):
    path = tmp_path / "own.py"
    keys = set()
    for text in ("first", "second"):
        path.write_text(f"# {text}")
        keys.add(key(**{field: (f"{path}:Mine",)}))
    assert len(keys) == 2


def test_the_key_sees_own_code_inside_a_chain(tmp_path):
    path = tmp_path / "own.py"
    keys = set()
    for text in ("first", "second"):
        path.write_text(f"# {text}")
        keys.add(key(defenses=(f"prune+{path}:Mine:x=1",)))
    assert len(keys) == 2


def test_a_partition_gives_each_client_its_own_share():
    skewed = Partition(kind="classes", clients=5, classes=1)
    stage = set_stage(dataclasses.replace(TINY, trials=5, partition=skewed), None, "cpu")
    assert all(len(set(labels.tolist())) <= 2 for labels in stage.batch.labels)


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
