"""The contact sheets beside a report."""


def test_several_attacks_are_shown_side_by_side(leakgauge, small, tmp_path, files_in):
    attacks = "linear inverting-gradients:steps=5"
    outcome = leakgauge("audit", *small, "--attacks", attacks, "--defenses", "none", "--out", "run")
    assert outcome.code == 0, outcome.err
    sheet = tmp_path / "run" / "attacks.png"
    assert sheet.read_bytes().startswith(b"\x89PNG")
    assert sheet.stat().st_mode & 0o077 == 0  # it shows private records
    assert "pairs.png" in files_in(tmp_path / "run")


def test_one_attack_needs_no_comparison(leakgauge, small, tmp_path):
    leakgauge("audit", *small, "--attacks", "linear", "--defenses", "prune", "--out", "run")
    assert not (tmp_path / "run" / "attacks.png").exists()


def test_tables_have_no_pictures(leakgauge, tmp_path):
    attacks = "linear inverting-gradients:steps=5"
    outcome = leakgauge(
        "audit",
        "--model",
        "mlp",
        "--data",
        "breast-cancer",
        "--trials",
        2,
        "--attacks",
        attacks,
        "--defenses",
        "none",
        "--out",
        "run",
    )
    assert outcome.code == 0, outcome.err
    assert not list((tmp_path / "run").glob("*.png"))
