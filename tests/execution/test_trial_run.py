"""One attack against its victims: what is sent, what is seen, how many at once, and when it is over."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from leakgauge.attacks.linear import Linear
from leakgauge.attacks.mean_image import MeanImage
from leakgauge.errors import LeakgaugeError, NotApplicable
from leakgauge.execution import table_cell as module
from leakgauge.execution.table_cell import LastTrialRun
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import Attack, Fact, Reconstruction, Scenario, TamperingServer

TRIALS = 5


@dataclass(frozen=True)
class Looking(Attack):
    """Notes what it is shown and which seeds it gets; stops with Ctrl-C at a trial of this seed."""

    name: ClassVar[str] = "looking"
    summary: ClassVar[str] = "notes what it is shown"
    paper: ClassVar[str] = "none"
    needs: ClassVar[frozenset] = frozenset()
    seen: ClassVar[list] = []
    stop: ClassVar[int | None] = None

    def solve(self, problem, seeds, progress):
        self.seen.append((problem, list(seeds)))
        if self.stop in seeds:
            raise KeyboardInterrupt
        progress(1.0)
        return blank(len(seeds))

    def concerns(self, observation):
        return (f"{len(next(iter(observation.update.tensors.values())))} seen",)


@dataclass(frozen=True)
class Asking(TamperingServer):
    """A server that asks the same client again and again; content after so many queries."""

    name: ClassVar[str] = "asking"
    summary: ClassVar[str] = "asks again"
    paper: ClassVar[str] = "none"
    needs: ClassVar[frozenset] = frozenset()
    asks_again: ClassVar[bool] = True
    queries: int = 3

    def prepare(self, model, data, public=None):
        doubled = {name: 2 * p for name, p in model.state_dict().items()}
        sent = copy.deepcopy(model)
        sent.load_state_dict(doubled)
        return sent

    def ask_again(self, observation, asked):
        return None if asked >= self.queries else observation.model

    def solve(self, problem, seeds, progress):
        return blank(len(seeds))


def blank(trials):
    count = torch.ones(trials, dtype=torch.long)
    return Reconstruction(torch.zeros(trials, 1, 1, 8, 8), None, torch.ones(trials), count, count)


@pytest.fixture(autouse=True)
def forgotten():
    Looking.seen.clear()
    yield
    Looking.stop = None


@pytest.fixture(scope="module")
def setup():
    return load_setup(Scenario(data="digits", model="mlp:hidden=8", trials=TRIALS, seed=10), None, "cpu")


@pytest.fixture(scope="module")
def tampered():
    scenario = Scenario(data="digits", model="mlp:hidden=8", trials=TRIALS, threat_model="malicious-parameters")
    return load_setup(scenario, None, "cpu")


def run_of(setup, attack, defense="none"):
    return LastTrialRun().of(setup, Cell(attack, defense, False, attack.name))


def quiet(_):
    pass


# --- what is sent and seen --------------------------------------------------------------------------


def test_an_honest_server_sends_the_global_model(setup):
    assert run_of(setup, Linear()).sent is setup.model


def test_a_tampering_server_sends_its_own_where_the_threat_model_allows_it(setup, tampered):
    sent = run_of(tampered, Asking()).sent
    for mine, own in zip(sent.parameters(), tampered.model.parameters(), strict=True):
        assert torch.equal(mine, 2 * own)
    with pytest.raises(NotApplicable, match=r"changes the model's parameters, .* use --threat-model malicious-param"):
        _ = run_of(setup, Asking()).sent


def test_the_attack_sees_the_updates_of_its_trials_and_the_facts_of_its_threat_model(setup):
    run_of(setup, Looking()).of([1, 3], quiet)
    ((seen, seeds),) = Looking.seen
    assert seeds == [setup.scenario.seeds[1], setup.scenario.seeds[3]]
    expected = setup.update((), setup.model, setup.batch, [1, 3])
    for name, tensor in expected.tensors.items():
        assert torch.equal(seen.update.tensors[name], tensor)
    assert seen.knows(Fact.INPUT_SPEC) == (Fact.INPUT_SPEC in setup.threat_model.facts)
    assert not seen.knows(Fact.LABELS)


def test_a_floor_sees_no_update(setup, monkeypatch):
    seen = []
    real = MeanImage.solve
    monkeypatch.setattr(MeanImage, "solve", lambda self, o, *rest: seen.append(o) or real(self, o, *rest))
    run_of(setup, MeanImage()).of(range(TRIALS), quiet)
    assert all(not t.any() for t in seen[0].update.tensors.values())


def test_concerns_are_asked_of_one_trial_and_only_of_an_attack_that_has_any(setup, monkeypatch):
    assert run_of(setup, Looking()).concerns(2) == ("1 seen",)
    silent = run_of(setup, Linear())
    monkeypatch.setattr(module, "observe", lambda *_: pytest.fail("no need to look"))
    assert silent.concerns(2) == ()


# --- how many at once -------------------------------------------------------------------------------


def test_as_many_trials_at_once_as_fit_and_progress_over_all_of_them(setup, monkeypatch):
    monkeypatch.setattr("leakgauge.execution.batching.fitting", lambda *_: 2)
    shares = []
    result = run_of(setup, Looking()).of(range(TRIALS), shares.append)
    assert [len(seeds) for _, seeds in Looking.seen] == [2, 2, 1]
    assert len(result.objective) == TRIALS
    assert result.finished is None
    assert shares == pytest.approx([0.4, 0.8, 1.0])
    assert run_of(setup, Looking()).at_once(range(TRIALS)) == 2


def test_one_trial_or_a_server_that_asks_again_is_one_at_once(setup, tampered):
    assert run_of(setup, Looking()).at_once([4]) == 1
    assert run_of(tampered, Asking()).at_once(range(TRIALS)) == 1


# --- when it is over --------------------------------------------------------------------------------


def test_an_interrupt_keeps_the_trials_before_it(setup, monkeypatch):
    monkeypatch.setattr("leakgauge.execution.batching.fitting", lambda *_: 2)
    Looking.stop = setup.scenario.seeds[3]
    result = run_of(setup, Looking()).of(range(TRIALS), quiet)
    assert result.finished.tolist() == [True, True]


def test_an_interrupt_before_any_trial_is_done_goes_on(setup):
    Looking.stop = setup.scenario.seeds[0]
    with pytest.raises(KeyboardInterrupt):
        run_of(setup, Looking()).of(range(TRIALS), quiet)


@pytest.mark.parametrize("queries", [1, 3])
def test_a_server_asks_each_client_until_it_is_content(tampered, monkeypatch, queries):
    looks = []
    real = module.observe
    monkeypatch.setattr(module, "observe", lambda *given: looks.append(1) or real(*given))
    assert len(run_of(tampered, Asking(queries)).of([0, 1], quiet).objective) == 2
    assert len(looks) == 2 * queries


def test_a_server_that_is_never_content_is_stopped(tampered, monkeypatch):
    monkeypatch.setattr(module, "_MOST_QUERIES", 4)
    with pytest.raises(LeakgaugeError, match="asking still asks after 4 queries"):
        run_of(tampered, Asking(1000)).of([0], quiet)


# --- defenses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("defense", "nothing"), [("prune:share=0.9", False), ("clip:norm=1e9", True)])
def test_a_defense_that_changes_nothing_is_noticed(setup, defense, nothing):
    assert run_of(setup, Linear(), defense).defense_did_nothing == nothing
