"""Shared by every test: one thread per worker (several spinning threads fight), and the optional real data.

`pytest --without-data` runs only the tests that want real data, with an empty folder: each of them must skip.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.metrics.scoring import Scores, score
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, DataSpec, Observation, Reconstruction, SharedUpdate, threat_model

torch.set_num_threads(1)

RealData = Callable[[str], Path]


@pytest.fixture(scope="session")
def real_data() -> RealData:
    """real_data("cifar10"): the folder that holds this set in its standard format, or a skip that names the set.

    That the folder exists proves nothing: it may hold other sets, or only weights that were fetched into it.
    """
    from leakgauge.data import inventory
    from leakgauge.reading.files import data_root

    root = data_root()
    present = {row.name for row in inventory(root) if row.present and not row.embedded}
    present |= {folder.name for folder in root.glob("iiit5k")}  # words, for the attacks on text; no set of its own

    def folder_with(name: str) -> Path:
        if name not in present:
            pytest.skip(f"{name} is not in LEAKGAUGE_DATA")
        return root

    return folder_with


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-data", action="store_true", help="only tests of real data, in an empty folder")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--without-data"):
        os.environ["LEAKGAUGE_DATA"] = tempfile.mkdtemp(prefix="leakgauge-no-data-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.getoption("--without-data"):
        Path(os.environ["LEAKGAUGE_DATA"]).rmdir()  # fails if a test wrote into it


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--without-data"):
        wanting = [item for item in items if "real_data" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanting])
        items[:] = wanting


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    """Without data a test that passes has not asked for its set, or asks for one that it does not use."""
    report = yield
    if item.config.getoption("--without-data") and report.when == "call" and report.passed:
        report.outcome, report.longrepr = "failed", f"{item.nodeid} must skip where its data set is missing"
    return report


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their length: a gzip header holds the time, and every worker must collect the same names."""
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None


@pytest.fixture
def small_suite(monkeypatch):
    """small_suite(suite, seconds, attacks, servers): what this suite plays from now on."""
    from leakgauge import catalog
    from leakgauge.setup import suites

    def play(suite: str, seconds: float, attacks: tuple[str, ...], servers: tuple[str, ...] = ()) -> None:
        specs = {spec.partition(":")[0]: spec for spec in (*attacks, *servers)}
        classes = tuple(catalog.get("attacks", name) for name in specs)
        usual = suites.played_in, suites.spec_in
        monkeypatch.setitem(suites.SECONDS, suite, seconds)
        monkeypatch.setattr(suites, "played_in", lambda name: classes if name == suite else usual[0](name))
        monkeypatch.setattr(
            suites, "spec_in", lambda name, attack: specs[attack.name] if name == suite else usual[1](name, attack)
        )

    return play


# --- private digits and small models for them; a folder may have its own of the same name ---------------


@pytest.fixture(scope="session")
def digits():
    return load("digits")


@pytest.fixture
def spec(digits) -> DataSpec:
    return digits.spec


@pytest.fixture
def victims(digits) -> Callable[..., Batch]:
    """victims(trials, samples, dtype)"""

    def draw(trials: int = 2, samples: int = 3, dtype: torch.dtype = torch.float64) -> Batch:
        batch = draw_victims(digits, trials, samples, seed=0)
        return Batch(batch.inputs.to(dtype), batch.labels)

    return draw


@pytest.fixture
def model(digits) -> Callable[..., nn.Module]:
    """model(spec) for digits, in float64."""

    def build(spec: str = "mlp:hidden=6,activation=sigmoid") -> nn.Module:
        return load_model(spec, digits.spec, seed=0).double()

    return build


# --- private samples, a client step, and what an attacker sees of it ------------------------------------


@dataclass(frozen=True)
class Scene:
    """One attacked set-up: the secret beside what is seen of it."""

    data: DataSpec
    batch: Batch
    seen: Observation

    def score(self, result: Reconstruction) -> Scores:
        return score(self.batch, result, self.data)

    def psnr(self, result: Reconstruction) -> torch.Tensor:
        return self.score(result).records["psnr"].mean(1)


@pytest.fixture(scope="session")
def data_sets():
    return {name: (load(name), load(name, "train")) for name in ("digits", "breast-cancer")}


@pytest.fixture
def scene(data_sets) -> Callable[..., Scene]:
    """scene(model, data=..., trials=..., samples=..., ...): a client step, observed."""

    def make(
        model: str | nn.Module = "mlp:hidden=16",
        *,
        data: str = "digits",
        trials: int = 2,
        samples: int = 1,
        local: Client | None = None,
        defenses: tuple = (),
        told: str = "honest-but-curious",
        dtype: torch.dtype = torch.float32,
        change: Callable[[SharedUpdate], SharedUpdate] = lambda update: update,
        seed: int = 0,
    ) -> Scene:
        victims, public = data_sets[data]
        local = local or Client()
        net = load_model(model, victims.spec, seed) if isinstance(model, str) else model
        net = net.to(dtype)
        drawn = draw_victims(victims, trials, samples, seed)
        batch = Batch(drawn.inputs.to(dtype), drawn.labels)
        update = change(chain(client_step(local), *defenses)(net, batch, tuple(range(trials))))
        facts = facts_about(net, batch, victims.spec, local, public_batch(public, 64, seed))
        return Scene(victims.spec, batch, observe(net, update, threat_model(told), facts))

    return make
