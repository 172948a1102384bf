"""What an audit runs that names no attacks."""

import pytest

from leakgauge import catalog
from leakgauge.setup.suites import SUITES, attacks_of, forbidden_servers, only_unlabelled
from leakgauge.types import SUITE_NAMES, Scenario

HONEST, PARAMETERS, ARCHITECTURE = "honest-but-curious", "malicious-parameters", "malicious-architecture"


def names(specs):
    return [spec.partition(":")[0] for spec in specs]


def test_every_name_a_scenario_may_use_is_a_suite():
    assert tuple(SUITES) == SUITE_NAMES


@pytest.mark.parametrize("suite", SUITE_NAMES)
def test_every_entry_can_be_built(suite):
    for spec in (*SUITES[suite].attacks, *SUITES[suite].unlabelled, *SUITES[suite].servers):
        assert catalog.build("attacks", spec).baseline is False


@pytest.mark.parametrize("suite", SUITE_NAMES)
def test_labels_come_first_and_what_solves_comes_before_what_searches(suite):
    order = names(SUITES[suite].attacks)
    assert order[:6] == ["labels", "linear", "rank-one", "patch-embedding", "peeling", "rgap"]
    assert all(hasattr(catalog.get("attacks", name), "time_budget") for name in order[6:])


def test_a_longer_suite_tries_at_least_what_a_shorter_one_does():
    found = [set(names(SUITES[suite].attacks)) - {"idlg", "dlg", "cpl"} for suite in SUITE_NAMES]
    assert found[0] <= found[1] <= found[2]
    assert [SUITES[s].seconds for s in SUITE_NAMES] == [60, 600, 7200]


@pytest.mark.parametrize("suite", SUITE_NAMES)
def test_every_suite_has_a_search_that_needs_no_label(suite):
    assert "dlg" in names((*SUITES[suite].attacks, *SUITES[suite].unlabelled))
    assert only_unlabelled(Scenario(suite=suite)) == {*names(SUITES[suite].unlabelled)}
    assert only_unlabelled(Scenario(suite=suite, attacks=("dlg",))) == set()


def test_attacks_that_are_named_are_run_instead():
    assert attacks_of(Scenario(attacks=("linear",), suite="full")) == ("linear",)


@pytest.mark.parametrize(
    ("threat", "servers"),
    [(HONEST, []), (PARAMETERS, ["trap-weights", "mkor"]), (ARCHITECTURE, ["imprint", "trap-weights", "mkor"])],
)
def test_servers_tamper_only_where_the_threat_model_lets_them(threat, servers):
    scenario = Scenario(threat_model=threat)
    own = (*SUITES["quick"].attacks, *SUITES["quick"].unlabelled)
    assert list(attacks_of(scenario)[len(own) :]) == servers
    assert {*servers, *forbidden_servers(scenario)} == set(SUITES["quick"].servers)
