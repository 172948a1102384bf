from leakgauge.errors import BadInput


def test_a_message_is_one_line_and_repeats_no_more_than_a_little_of_what_came():
    message = str(BadInput("x", allowed="short", got="a\n" * 100_000, do="mend it"))
    assert "\n" not in message
    assert len(message) < 1000
    assert message.endswith("...; mend it")
