"""`leakgauge bench`: the stable keys, and one clear line for what cannot be timed."""


def test_bench_prints_the_stable_keys(leakgauge):
    outcome = leakgauge(
        "bench", "--models", "lenet-dlg", "--victims", 2, "--seconds", 0.05, "--device", "cpu", "--json"
    )
    assert outcome.code == 0, outcome.err
    (row,) = outcome.json["rows"]
    assert {"model", "victims", "device", "precision", "loop", "engine", "ratio"} <= row.keys()
    assert (row["model"], row["victims"], row["device"]) == ("lenet-dlg", 2, "cpu")


def test_bench_shows_a_table(leakgauge):
    outcome = leakgauge("bench", "--models", "lenet-dlg", "--victims", 1, "--seconds", 0.05)
    assert outcome.code == 0
    assert "engine / loop" in outcome.out


def test_an_unknown_model_or_no_time_is_refused(leakgauge, one_line):
    assert "lenet-dlg" in one_line(leakgauge("bench", "--models", "lenet"))
    assert "seconds" in one_line(leakgauge("bench", "--models", "lenet-dlg", "--seconds", 0))


def test_solving_tells_both_ways_and_how_many_were_solved(leakgauge, monkeypatch):
    from leakgauge.lab import solving

    for name, value in (("MODEL", "mlp:hidden=12,activation=sigmoid"), ("DATA", "digits"), ("THRESHOLD", 1e-3)):
        monkeypatch.setattr(solving, name, value)
    outcome = leakgauge("bench", "--solving", "--victims", 3, "--loop-victims", 1, "--json")
    assert outcome.code == 0, outcome.err
    row = outcome.json["solving"]
    assert row["engine_solved"] == 3
    assert row["sooner"] > 0
    shown = leakgauge("bench", "--solving", "--victims", 2, "--loop-victims", 1)
    assert "solved by loop" in shown.out
