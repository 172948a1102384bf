"""Every defense inside a Flower client, and its server side inside a strategy; with Flower's own messages."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge import catalog
from leakgauge.client.chain import prepared
from leakgauge.data import load
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.dgc import DGC
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.random_mask import RandomMask
from leakgauge.defenses.secure_aggregation import SecureAggregation
from leakgauge.errors import BadInput, MissingExtra, NotApplicable
from leakgauge.integrations.flower import Training, as_mod, with_aggregate
from leakgauge.models import load_model
from leakgauge.types import Client, Defense

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    flwr = pytest.importorskip("flwr.app", reason="the package flwr is not installed")
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg

DIGITS = load("digits", "test", None)
LOCAL = Client(kind="fedavg", lr=0.1)


@pytest.fixture(autouse=True)
def in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are made inside a run; Flower keeps its number in a class."""
    from flwr.supercore.task_identity import TaskIdentity

    for part in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, part, 1)


def network() -> nn.Module:
    return load_model("mlp", DIGITS.spec, 0)


def samples(_: Any = None) -> tuple[Tensor, Tensor]:
    return DIGITS.take(torch.arange(2))


def message(model: nn.Module, kind: str = "train", number: int = 1) -> Any:
    arrays = flwr.ArrayRecord(model.state_dict())
    content = flwr.RecordDict({"arrays": arrays, "config": flwr.ConfigRecord({"lr": 0.1, "server-round": number})})
    sent = flwr.Message(content, dst_node_id=7, message_type=kind)
    sent.metadata.__dict__["_message_id"] = f"message-{number}"
    return sent


def context(node: int = 7) -> Any:
    return flwr.Context(run_id=1, node_id=node, node_config={}, state=flwr.RecordDict(), run_config={})


def trained(message: Any, _: Any) -> Any:
    """What an ordinary app does with a train message."""
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    inputs, labels = samples()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    metrics = flwr.MetricRecord({"num-examples": len(labels), "loss": 1.0})
    return flwr.Message(
        flwr.RecordDict({"arrays": flwr.ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message
    )


def replied(mod: Callable[..., Any], model: nn.Module | None = None, number: int = 1, where: Any = None) -> Any:
    app = ClientApp(mods=[mod])
    app.train()(trained)
    return app(message(model or network(), number=number), where or context())


def moved(reply: Any, model: nn.Module) -> dict[str, Tensor]:
    after = reply.content["arrays"].to_torch_state_dict()
    return {n: after[n] - p.detach() for n, p in model.named_parameters()}


def plain() -> dict[str, Tensor]:
    return moved(trained(message(network()), None), network())


def test_noise_of_the_given_size_is_added_to_the_update_and_metrics_stay() -> None:
    reply = replied(as_mod(Gaussian(std=0.05)))
    noise = torch.cat([(moved(reply, network())[n] - t).flatten() for n, t in plain().items()])
    assert float(noise.std()) == pytest.approx(0.05, rel=0.05)
    assert reply.content["metrics"]["loss"] == 1.0


def test_draws_are_fresh_unless_a_seed_is_given() -> None:
    def first(mod: Callable[..., Any], number: int = 1, node: int = 7) -> Tensor:
        return moved(replied(mod, number=number, where=context(node)), network())["fc1.weight"]

    assert not torch.equal(first(as_mod(Gaussian())), first(as_mod(Gaussian())))
    seeded = as_mod(Gaussian(), seed=3)
    assert torch.equal(first(seeded), first(seeded))
    assert not torch.equal(first(seeded), first(seeded, number=2))
    assert not torch.equal(first(seeded), first(seeded, node=8))


def test_defenses_act_in_the_order_written() -> None:
    reply = replied(as_mod(Gaussian(std=1.0), Clip(norm=0.1, unit="client")))
    length = torch.cat([t.flatten() for t in moved(reply, network()).values()]).norm()
    assert float(length) == pytest.approx(0.1, rel=1e-3)


def test_no_defense_changes_nothing_but_rounding() -> None:
    for name, tensor in moved(replied(as_mod()), network()).items():
        assert torch.allclose(tensor, plain()[name], atol=1e-7)


def test_other_messages_pass_untouched() -> None:
    app = ClientApp(mods=[as_mod(Gaussian())])
    app.evaluate()(trained)
    reply = app(message(network(), "evaluate"), context())
    assert torch.equal(moved(reply, network())["fc1.weight"], plain()["fc1.weight"])


def test_what_a_client_keeps_back_waits_in_flowers_own_state() -> None:
    mod, where = as_mod(DGC(share=0.9, momentum=0.0)), context()
    first = moved(replied(mod, where=where), network())["fc1.weight"]
    second = moved(replied(mod, where=where, number=2), network())["fc1.weight"]
    assert 0 < int((first != 0).sum()) <= 0.11 * first.numel()
    waited = (second != 0) & (first == 0)
    assert torch.allclose(second[waited], 2 * plain()["fc1.weight"][waited], atol=1e-6)


def test_statistics_of_batchnorm_pass_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    other = {n: t + 1 for n, t in model.state_dict().items()}

    def answer(arrived: Any, _: Any) -> Any:
        return flwr.Message(flwr.RecordDict({"arrays": flwr.ArrayRecord(other)}), reply_to=arrived)

    reply = as_mod(Gaussian(std=5.0))(message(model), context(), answer)
    after = reply.content["arrays"].to_torch_state_dict()
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(after[name], other[name])
        assert after[name].dtype == other[name].dtype
    assert not torch.allclose(after["0.weight"], other["0.weight"], atol=0.1)


def _refusal(defense: Defense) -> str:
    """Why it is no mod around the app's own training; empty if it is."""
    try:
        replied(as_mod(defense))
    except NotApplicable as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", list(catalog.find("defenses")))
def test_every_defense_is_a_mod_around_the_app_or_in_its_place(name: str) -> None:
    defense: Defense = catalog.find("defenses")[name]()
    model = prepared(network(), defense)
    refused = _refusal(defense)
    if defense.fellows:
        assert "among the clients of a round" in refused
        return
    if "with_aggregate" in refused:
        assert type(defense).aggregate is not Defense.aggregate
        return
    if refused:
        assert "training=" in refused
        reply = replied(as_mod(defense, training=Training(network, samples, LOCAL)), model)
        assert reply.content["metrics"]["num-examples"] == 2
    else:
        reply = replied(as_mod(defense))
    change = moved(reply, model)
    assert all(bool(torch.isfinite(t).all()) for t in change.values())
    assert any(bool(t.any()) for t in change.values())


def test_training_in_the_apps_place_is_the_apps_own_where_nothing_is_defended() -> None:
    reply = replied(as_mod(training=Training(network, samples, LOCAL)))
    for name, tensor in moved(reply, network()).items():
        assert torch.allclose(tensor, plain()[name], atol=1e-6)


def test_gradients_are_not_what_flower_sends() -> None:
    with pytest.raises(NotApplicable, match="fedavg"):
        as_mod(training=Training(network, samples, Client()))
    with pytest.raises(NotApplicable, match="write it last"):
        as_mod(DGC(), Gaussian(), training=Training(network, samples, LOCAL))


def test_an_error_of_the_app_is_handed_on() -> None:
    def fails(arrived: Any, _: Any) -> Any:
        return flwr.Message(flwr.Error(code=0, reason="broken"), reply_to=arrived)

    assert as_mod(Gaussian())(message(network()), context(), fails).has_error()


def test_two_models_in_a_message_are_refused() -> None:
    sent = message(network())
    sent.content["second"] = flwr.ArrayRecord(network().state_dict())
    with pytest.raises(BadInput, match="exactly one ArrayRecord"):
        as_mod(Gaussian())(sent, context(), trained)


def test_a_reply_with_other_names_is_refused() -> None:
    def answer(arrived: Any, _: Any) -> Any:
        record = flwr.ArrayRecord({"else": flwr.Array(np.zeros(2, np.float32))})
        return flwr.Message(flwr.RecordDict({"arrays": record}), reply_to=arrived)

    with pytest.raises(BadInput, match="by the same names"):
        as_mod(Gaussian())(message(network()), context(), answer)


class TwoNodes:
    """All of a Grid that FedAvg asks for."""

    def get_node_ids(self) -> list[int]:
        return [1, 2]


def aggregated(defense: Defense, weights: tuple[int, int] = (2, 2)) -> dict[str, Tensor]:
    """Two clients, the second of which moves twice as far."""
    model = network()
    strategy = with_aggregate(FedAvg(), defense)

    sent = list(strategy.configure_train(1, flwr.ArrayRecord(model.state_dict()), flwr.ConfigRecord(), TwoNodes()))
    replies = []
    for factor, weight, arrived in zip((1, 2), weights, sent, strict=True):
        arrived.metadata.__dict__["_message_id"] = str(factor)
        state = {n: t + factor * plain()[n] for n, t in model.state_dict().items()}
        content = {"arrays": flwr.ArrayRecord(state), "metrics": flwr.MetricRecord({"num-examples": weight})}
        replies.append(flwr.Message(flwr.RecordDict(content), reply_to=arrived))
    arrays, _ = strategy.aggregate_train(1, replies)
    after = arrays.to_torch_state_dict()
    return {n: after[n] - p.detach() for n, p in model.named_parameters()}


def test_the_plain_mean_is_fedavgs_weighted_one() -> None:
    for name, tensor in aggregated(Gaussian(), (1, 3)).items():
        assert torch.allclose(tensor, 1.75 * plain()[name], atol=1e-6)


def test_the_server_side_of_a_defense_takes_its_place() -> None:
    for name, tensor in aggregated(SecureAggregation(clients=2)).items():
        assert torch.allclose(tensor, 1.5 * plain()[name], atol=1e-6)
    for name, tensor in aggregated(RandomMask(share=0.5)).items():
        assert torch.allclose(tensor, 3 * plain()[name], atol=1e-6)


def test_a_metric_to_weigh_by_that_is_not_there_is_named() -> None:
    strategy = with_aggregate(FedAvg(), Gaussian(), weighted_by="nothing")
    strategy.configure_train(1, flwr.ArrayRecord(network().state_dict()), flwr.ConfigRecord(), TwoNodes())
    reply = trained(message(network()), None)
    with pytest.raises(NotApplicable, match="weighted_by"):
        strategy.aggregate_train(1, [reply])


def test_without_flower_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    with pytest.raises(MissingExtra, match=r"leakgauge\[flower\]"):
        as_mod(Gaussian())
