"""Nothing is asked of any address but this machine's: seen from outside, in a network that has nothing else."""

import re
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("ray")
HERE = re.compile(r'sin6?_addr.*?"(127\.|::1|::ffff:127\.)|inet_pton\(AF_INET6, "(::1|::ffff:127\.)')
RUNS = {
    "alone": "audit --data digits --model mlp --attacks linear --defenses none --trials 1 --out a",
    "ray": "audit --data digits --model mlp --attacks linear --defenses none --trials 1 --on ray --workers 1 --out b",
}


def tools() -> bool:
    if shutil.which("strace") is None or shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not tools(), reason="needs strace, ip and the right to make a network namespace")
@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_no_address_elsewhere_is_asked(words, tmp_path):
    traced = f"strace -f -qq -e trace=connect -e signal=none -o calls {sys.executable} -P -m leakgauge {words}"
    alone = ["unshare", "-n", "--kill-child", "sh", "-c", f"ip link set lo up; exec {traced}"]
    try:
        done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("this machine is too busy to trace every call of a cluster")
    assert done.returncode == 0, done.stderr[-2000:]
    calls = (tmp_path / "calls").read_text().splitlines()
    elsewhere = [c for c in calls if "AF_INET" in c and not HERE.search(c) and "SOCK_DGRAM" not in c]
    assert not elsewhere, elsewhere[:5]
