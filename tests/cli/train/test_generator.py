"""`leakgauge train generator`: a file that ggl can use, or one clear line; an interrupt keeps what was learnt."""

from leakgauge.generators.saving import read_generator

QUICK = ("--data", "digits", "--steps", 4, "--latent", 3, "--width", 4, "--device", "cpu")


def test_a_generator_is_written_with_its_sheet_and_used_by_the_attack(leakgauge, tmp_path):
    made = leakgauge("train", "generator", *QUICK, "--out", "g.safetensors", "--json")
    assert made.code == 0, made.err
    assert {"file", "sheet", "mse", "kl", "seconds", "sha256", "samples", "steps", "seed"} <= made.json.keys()
    assert made.json["samples"] == 1347
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    assert read_generator(str(tmp_path / "g.safetensors")).latent == 3
    assert "step 4 of 4: error" in made.err

    used = leakgauge(
        "attack",
        "ggl",
        "--data",
        "digits",
        "--model",
        "lenet-dlg:filters=4",
        "--trials",
        1,
        "--steps",
        2,
        "--generator",
        "g.safetensors",
    )
    assert used.code == 0, used.err
    assert "ggl on a decoy" in used.out
    assert "generator-" not in used.out  # it has seen the public half only


def test_people_are_told_how_to_use_it(leakgauge):
    made = leakgauge("train", "generator", *QUICK, "--out", "deep/er/g.safetensors")
    assert made.code == 0, made.err
    assert "leakgauge attack ggl --data digits --generator deep/er/g.safetensors" in made.out


def test_the_same_seed_gives_the_same_file(leakgauge):
    hashes = [
        leakgauge("train", "generator", *QUICK, "--out", "g.safetensors", "--seed", seed, "--json").json["sha256"]
        for seed in (1, 1, 2)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_an_interrupt_writes_what_was_learnt_and_says_so(leakgauge, monkeypatch, tmp_path):
    from leakgauge.cli.train import generator as command

    def cut_off(plan, take, samples, schedule, device, watch):
        def stop(step, error, kl):
            watch(step, error, kl)
            if step == 2:
                raise KeyboardInterrupt

        return original(plan, take, samples, schedule, device, stop)

    original = command.train
    monkeypatch.setattr(command, "train", cut_off)
    outcome = leakgauge("train", "generator", *QUICK, "--out", "g.safetensors", "--json")
    assert outcome.code == 130
    assert outcome.json["steps"] == 2
    assert "after step 2 of 4" in outcome.err
    assert read_generator(str(tmp_path / "g.safetensors")).latent == 3


def test_mistakes_are_one_line_and_write_nothing(leakgauge, one_line, tmp_path, files_in):
    out = ("--out", "g.safetensors")
    assert ".safetensors" in one_line(leakgauge("train", "generator", *QUICK, "--out", "g.pt"))
    assert "--steps must be at least 1" in one_line(
        leakgauge("train", "generator", "--data", "digits", *out, "--steps", 0)
    )
    assert "multiple of 4" in one_line(leakgauge("train", "generator", "--data", "digits", *out, "--width", 6))
    assert "--lr" in one_line(leakgauge("train", "generator", "--data", "digits", *out, "--lr", -1))
    assert "pictures" in one_line(leakgauge("train", "generator", "--data", "breast-cancer", *out))
    assert "did you mean 'digits'" in one_line(leakgauge("train", "generator", "--data", "digit", *out))
    assert "leakgauge data fetch" in one_line(leakgauge("train", "generator", "--data", "mnist", *out))
    assert files_in(tmp_path) == []


def test_a_generator_that_does_not_fit_is_refused_by_the_attack(leakgauge, one_line):
    assert leakgauge("train", "generator", *QUICK, "--out", "g.safetensors").code == 0
    line = one_line(leakgauge("attack", "ggl", "--data", "photos32", "--generator", "g.safetensors", "--trials", 1))
    assert "3x32x32" in line
    assert "train generator --data photos32" in line
