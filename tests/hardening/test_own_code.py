"""`my.py:net` runs, that is what it is for; a file that cannot be run is refused like any other."""

import pytest

from leakgauge.catalog import own
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.types import DataSpec

TABLE = DataSpec("table", (4,), 3, "tabular")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"def net(:",
        b"net = \0",
        b"# coding: nothing\nnet = 1",
        b"\xff\xfe\xfd",
        b"raise RuntimeError('a\\nb')",
        b"import sys\nsys.exit(3)",
        b"import a_package_that_is_not_there",
        b"def f(): return f()\nf()",
        b"net = " + b"(" * 500 + b")" * 500,
        b"net = 1",
        b"def net(): raise OSError",
        b"def net(): return 3",
    ],
)
def test_it_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "my.py").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        load_model(f"{tmp_path}/my.py:net", TABLE, 0)
    assert "\n" not in str(caught.value)


def test_a_script_that_ends_the_program_does_not_end_ours(tmp_path):
    (tmp_path / "my.py").write_text("raise SystemExit")
    with pytest.raises(BadInput, match="SystemExit"):
        own(f"{tmp_path}/my.py:net")
