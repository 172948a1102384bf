"""With too little memory a command ends in one line and exit code 2, or it runs: nothing is half done in between."""

import os
import resource
import subprocess
import sys

import pytest

GB = 2**30
PICTURES = (
    "audit --data photos32 --model resnet18 --batch-size 16 --attacks dlg:steps=2 --defenses none --trials 2 --out b"
)
RUNS = (
    (0.5, "inspect mlp --data digits"),
    (1.0, PICTURES),
    (2.0, PICTURES),
    (1.0, "train --data photos32 --model vgg16-mkor:hidden=4000 --rounds 1"),
)


@pytest.mark.skipif(sys.platform != "linux", reason="limits are set as Linux has them")
@pytest.mark.parametrize(("gigabytes", "command"), RUNS)
def test_a_limit_on_memory_is_said_in_one_line(gigabytes, command, tmp_path):
    limit = int(gigabytes * GB)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "leakgauge", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert done.stderr.strip().splitlines()[-1].startswith("leakgauge: ")
        assert "GiB" in done.stderr or "memory" in done.stderr
