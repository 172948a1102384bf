"""Nothing is asked of any address but this machine's: seen from outside, extra by extra, where no way leads anywhere.

Each run has a network to itself: the loopback, and a way out whose other end nobody listens at, so that a program which
first looks whether there is a network finds one. Every call that names an address is traced, and packets that take the
way out are counted. Names are known from a file that has this machine's only, any other is asked of a server out there.
"""

import importlib.util
import ipaddress
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN, SERVER = "192.0.2.1", "192.0.2.53"  # of a block that is nobody's
ADDRESS = re.compile(r'inet_addr\("([^"]+)"|inet_pton\(AF_INET6, "([^"]+)"|->\[?([0-9a-f.:]+?)\]?:\d+\]>')
SETTING = re.compile(r"FLWR_|RAY_|.*_proxy$", re.IGNORECASE)  # of whoever runs the tests
PATIENCE = 300  # seconds for a run of some seconds, on a machine that may be busy
AUDIT = "-m leakgauge audit --data digits --model mlp --attacks linear --trials 1"
GGL = "-m leakgauge attack ggl --data digits --model mlp --trials 1"
TRAIN = "-m leakgauge train --data digits --model mlp:hidden=4 --rounds 1"
LIGHTNING = """
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from leakgauge.integrations.lightning import leak_callback
from leakgauge.recording.recorder import Recorder

seen = leak_callback(every=1, recorder=Recorder("seen"), pick=lambda batch: (batch, batch[:, 0].long()))
Trainer(max_steps=2, limit_val_batches=0, accelerator="cpu", callbacks=[seen]).fit(BoringModel())
"""
OPACUS = """
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset
from leakgauge.integrations.opacus import dp_sgd_of

engine, model = PrivacyEngine(accountant="prv"), torch.nn.Linear(4, 2)
loader = DataLoader(TensorDataset(torch.rand(8, 4)), batch_size=2)
model, optimizer, loader = engine.make_private(
    module=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), data_loader=loader,
    noise_multiplier=1.0, max_grad_norm=1.0,
)
model(torch.rand(2, 4)).sum().backward()
optimizer.step()
print(dp_sgd_of(optimizer, engine.accountant).guarantee.epsilon)
"""
RUNS = {  # name: extra, the modules it brings, what is run
    "alone": ("", (), f"{AUDIT} --defenses none".split()),
    "ckks": ("encryption", ("tenseal",), f"{TRAIN} --encryption ckks".split()),
    "paillier": ("encryption", ("gmpy2",), f"{TRAIN} --encryption paillier:bits=256,insecure_demo=true".split()),
    "flower": ("flower", ("flwr", "ray"), [str(ROOT / "examples" / "flower" / "simulate.py"), "recorded"]),
    "generative": ("generative", ("cma",), f"{GGL} --optimizer cma-es --steps 2 --population 4".split()),
    "lightning": ("lightning", ("lightning",), ["-c", LIGHTNING]),
    "privacy": ("privacy", ("opacus",), ["-c", OPACUS]),
    "ray": ("ray", ("ray",), f"{AUDIT} --defenses none --on ray --workers 1".split()),
}
NOT_RUN = {
    "fuzz": "feeds our own readers random files, in tests only; it is not installed by default",
    "test": "tools for those who work on this program, and the other extras once more",
    "docs": "tools that build these pages",
    "nvflare": "our part of it is a filter that writes to a recorder's folder; tested where it is installed",
}
# What a machine's own configuration says of names and networks is covered up; the last lines run the command traced.
NOWHERE = f"""
for name in hosts resolv.conf nsswitch.conf; do mount --bind "$name" "/etc/$name" || exit 99; done
ip link set lo up || exit 99
if ip link add away type veth peer name nowhere; then
    for end in away nowhere; do ip link set $end addrgenmode none up || exit 99; done
    ip addr add {OWN}/24 dev away && ip route add default via {SERVER} || exit 99
    ip neigh add {SERVER} lladdr 02:00:00:00:00:02 dev away nud permanent || exit 99
fi
strace -f -qq -yy $FASTER -e trace=connect,sendto,sendmsg,sendmmsg -e signal=none -o calls "$@"
code=$?
cat /proc/net/dev >packets
exit $code
"""
# All that is started in it ends with it, whatever became of its parents.
ALONE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def tools() -> bool:
    return all(shutil.which(tool) for tool in ("strace", "unshare", "ip", "mount")) and works(*ALONE, "true")


def traced(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run by Python in such a network; what was called is in `folder`."""
    (folder / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n", "ascii")
    (folder / "resolv.conf").write_text(f"nameserver {SERVER}\noptions timeout:1 attempts:1\n", "ascii")
    (folder / "nsswitch.conf").write_text("hosts: files dns\n", "ascii")
    theirs = {name: value for name, value in os.environ.items() if not SETTING.match(name)}
    faster = "--seccomp-bpf" if works("strace", "-f", "--seccomp-bpf", "true") else ""
    told = {"HOME": str(folder), "CLIENTS": "1", "OMP_NUM_THREADS": "1", "FASTER": faster}
    told["RAY_raylet_start_wait_time_s"] = str(PATIENCE)
    command = [*ALONE, "sh", "-c", NOWHERE, "sh", sys.executable, "-P", *words]
    return subprocess.run(
        command, cwd=folder, env=theirs | told, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def elsewhere(calls: str) -> list[str]:
    """Those that try to send something to another machine.

    To connect a UDP socket sends nothing; Ray does so to learn which of its own addresses has the way out. Only who
    looks a name up does so with the server of names.
    """
    asked = []
    for call in calls.splitlines():
        quiet = "connect(" in call and "<TCP" not in call and SERVER not in call
        if not quiet and "<NETLINK" not in call and not all(_here("".join(found)) for found in ADDRESS.findall(call)):
            asked.append(call)
    return asked


def packets(table: str) -> int:
    """How many took the way out, if there was one."""
    found = re.search(r"^ *away:(.*)$", table, re.MULTILINE)
    return int(found[1].split()[9]) if found else 0


def _here(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_loopback or ip.is_unspecified or str(ip) == OWN


needs_tools = pytest.mark.skipif(
    not tools(), reason="needs strace, ip, mount and the right to make a network namespace"
)


@needs_tools
@pytest.mark.parametrize("name", RUNS)
def test_no_address_elsewhere_is_asked(name: str, tmp_path: Path) -> None:
    _, modules, words = RUNS[name]
    if missing := [module for module in modules if importlib.util.find_spec(module) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    try:
        done = traced(words, tmp_path)
    except subprocess.TimeoutExpired:
        pytest.skip("this machine is too busy to trace every call")
    if done.returncode == 99:
        pytest.skip(f"no network of its own can be made here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    asked = elsewhere((tmp_path / "calls").read_text())
    assert not asked, asked[:5]
    assert packets((tmp_path / "packets").read_text()) == 0


@needs_tools
@pytest.mark.parametrize(
    "words",
    [
        "socket.create_connection(('198.51.100.1', 80), 0.2)",
        "socket.gethostbyname('example.org')",
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('198.51.100.1', 80))",
    ],
)
def test_who_does_ask_is_seen(words: str, tmp_path: Path) -> None:
    done = traced(["-c", f"import socket\ntry: {words}\nexcept OSError: pass"], tmp_path)
    if done.returncode == 99:
        pytest.skip("no network of its own can be made here")
    assert elsewhere((tmp_path / "calls").read_text())
    table = (tmp_path / "packets").read_text()
    assert packets(table) or "away" not in table


def test_every_extra_is_run_or_has_a_reason_not_to() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    run = {extra for extra, _, _ in RUNS.values() if extra}
    assert run | set(NOT_RUN) == set(extras)
    assert not run & set(NOT_RUN)
