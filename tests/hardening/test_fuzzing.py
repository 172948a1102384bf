"""Every reader of outside files, fed with damaged and handmade ones: what comes out is the content or one line.

The readers, the damage and the watching are those of the long run, `benchmarks/reliability/fuzz.py`.
"""

import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leakgauge.errors import BadInput, LeakgaugeError

BENCH = Path(__file__).parents[2] / "benchmarks" / "reliability"
if not BENCH.is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
sys.path.insert(0, str(BENCH))

from guarding import offence, watched  # noqa: E402
from mutations import mutate  # noqa: E402
from reader import CANARY  # noqa: E402
from readers import READERS  # noqa: E402

EXAMPLES = 20
BY_NAME = {reader.name: reader for reader in READERS}
QUIET = settings(
    max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


class Place:
    """A folder with one reader's valid files, put back before each input."""

    def __init__(self, reader, folder):
        self.reader, self.folder = reader, folder
        reader.make(folder)
        self.valid = (folder / reader.file).read_bytes()
        self.files = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        try:
            reader.read(folder)  # loads what is imported late
        except LeakgaugeError:
            assert reader.name in ("face-generator", "lpips-wheel", "lpips-source")  # their files are known by hash

    def wrong(self, content):
        for path, usual in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(usual)
        (self.folder / self.reader.file).write_bytes(content)
        found, _ = offence(self.reader.read, self.folder)
        return "a trap was run" if (self.folder / CANARY).exists() else found


@pytest.fixture(scope="module", params=sorted(BY_NAME))
def place(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    yield Place(BY_NAME[request.param], folder)
    shutil.rmtree(folder)


def test_traps_are_refused_and_do_nothing(place):
    for number, trap in enumerate(place.reader.traps(place.folder)):
        assert place.wrong(trap) is None, f"trap {number}"


@QUIET
@given(rng=st.randoms(use_true_random=False))
def test_damage_gives_the_content_or_one_line(place, rng):
    assert place.wrong(mutate(place.valid, rng)) is None


def refuses(folder):
    raise BadInput("this", allowed="that", got="it", do="mend it")


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (lambda f: None, None),
        (refuses, None),
        (lambda f: 1 / 0, "ZeroDivisionError at"),
        (lambda f: sys.exit(1), "SystemExit at"),
        (lambda f: exec("1"), "a text was executed"),
        (lambda f: (f.parent / "escaped").mkdir(), "os.mkdir"),
        (lambda f: (f.parent / "escaped.txt").write_text(""), "opened for writing"),
        (lambda f: (f / "inside.txt").write_text(""), None),
        (lambda f: bytearray(700 << 20).count(1), "MB of memory"),
    ],
)
def test_the_watch_sees_what_it_should(tmp_path, read, found):
    (tmp_path / "own").mkdir()
    seen, refused = offence(read, tmp_path / "own")
    assert refused == (read is refuses)
    assert seen is None if found is None else found in seen


def test_the_watch_sees_programs(tmp_path):
    import subprocess

    with watched(tmp_path) as watch:
        subprocess.run([sys.executable, "-c", ""], check=True)
    assert any("subprocess.Popen" in line for line in watch.seen)
