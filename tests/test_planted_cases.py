"""Five planted cases, small enough for a test: the verdict is right each time."""

import pytest

from leakgauge.audit.run import run_audit
from leakgauge.defenses.accounting import sigma_for
from leakgauge.types import Scenario
from leakgauge.verdict.summary import headline

SEARCH = "inverting-gradients:steps=150,restarts=1"
EPSILON_ONE = f"dp-sgd:sigma={sigma_for(1.0, 1e-5, 1.0, 1):.4g},q=1,rounds=1,delta=1e-5"
CASES = {
    "leaky": (Scenario(data="digits", model="lenet-dlg", attacks=(SEARCH,)), "leaks"),
    "leaky through a broken defense": (
        Scenario(data="digits", model="lenet-dlg", attacks=(SEARCH,), defenses=("soteria:share=0.8",)),
        "leaks",
    ),
    "protected with a guarantee": (
        Scenario(data="digits", model="lenet-dlg", attacks=(SEARCH,), defenses=(EPSILON_ONE,)),
        "protected",
    ),
    "unknown": (
        Scenario(
            data="photos32",
            model="resnet20:width=4",
            batch_size=8,
            trials=2,
            defenses=("gaussian:std=0.01",),
            attacks=("inverting-gradients:steps=20,restarts=1",),
            variants="plain",
        ),
        "unknown",
    ),
    "tampered model": (
        Scenario(
            data="digits", model="lenet-dlg", batch_size=8, attacks=("imprint",), threat_model="malicious-architecture"
        ),
        "leaks",
    ),
}


@pytest.fixture(scope="module")
def verdicts():
    return {name: run_audit(scenario)[0].verdict for name, (scenario, _) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_standing_is_right(verdicts, name):
    assert verdicts[name].configurations[-1].standing == CASES[name][1]
    assert verdicts[name].leaks == (CASES[name][1] == "leaks")


def test_the_broken_defense_falls_to_who_knows_it(verdicts):
    entry = verdicts["leaky through a broken defense"].configurations[-1]
    assert entry.adaptive
    assert not entry.upper.guaranteed


def test_the_guarantee_is_told_with_its_kappa(verdicts):
    verdict = verdicts["protected with a guarantee"]
    upper = verdict.configurations[-1].upper
    assert upper.gamma < upper.kappa.high + 0.1
    assert "Guaranteed: nobody recovers more than" in verdict.configurations[-1].sides


def test_what_is_unknown_is_called_so(verdicts):
    verdict = verdicts["unknown"]
    assert "unknown" in verdict.configurations[-1].sides
    assert headline(verdict) in ("No leak found, and no guarantee", "No record recovered, but labels read")


def test_the_tampering_server_proves_its_recoveries(verdicts):
    assert verdicts["tampered model"].configurations[-1].lower.certified > 0
