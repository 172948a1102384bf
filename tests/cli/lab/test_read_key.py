"""`leakgauge lab read-key`: the key of every client from one update, and one line for what cannot work."""

import pytest

SHORT = (
    "lab",
    "read-key",
    "--data",
    "digits",
    "--model",
    "lenet-dlg:filters=4",
    "--local",
    "batchnorm=train",
    "--trials",
    "3",
)


def test_the_key_of_1024_numbers_is_read_to_one_in_a_million(leakgauge):
    outcome = leakgauge(*SHORT, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["length"] == 1024
    assert len(outcome.json["clients"]) == 3
    assert outcome.json["largest_error"] < 1e-6
    assert max(c["misfit"] for c in outcome.json["clients"]) < 1e-6


def test_the_table_says_how_far_the_keys_are_off(leakgauge):
    outcome = leakgauge(
        *SHORT, "--lock", "key-lock:told=key-and-gradient,length=8,activation=sigmoid", "--batch-size", 4
    )
    assert outcome.code == 0, outcome.err
    assert "3 keys of 8 numbers" in outcome.out


def test_noise_on_the_update_spoils_it(leakgauge):
    noisy = leakgauge(*SHORT, "--lock", "key-lock:told=gradient+gaussian:std=0.1", "--json").json
    assert noisy["largest_error"] > 0.1
    assert min(c["misfit"] for c in noisy["clients"]) > 0.1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--lock", "key-lock"), "--lock must be one key-lock that shares the gradient of its lock layer"),
        (("--lock", "gaussian:std=1"), "for example --lock key-lock:told=gradient"),
        (("--lock", "key-lock:told=gradient,rounds=2"), "without gradient where rounds is above 1"),
        (("--trials", "0"), "trials"),
    ],
)
def test_bad_input_is_one_line(leakgauge, one_line, flags, said):
    assert said in one_line(leakgauge(*SHORT, *flags))
