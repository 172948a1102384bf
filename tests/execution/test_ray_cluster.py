"""Coming to a cluster, its room, and what Ray's errors mean; the cluster itself is in test_ray."""

from __future__ import annotations

import pickle
import socket
import sys
from types import SimpleNamespace

import pytest

from leakgauge.errors import BadInput, LeakgaugeError, MissingExtra
from leakgauge.execution import ray_cluster
from leakgauge.execution.ray_cluster import Lost, Need, Node, RayCluster, connected, ray_module
from leakgauge.execution.worker import Finished, Progress, Refused


@pytest.mark.parametrize(
    ("need", "node", "fit"),
    [
        (Need(), Node(4, 0), 4),
        (Need(), Node(0.5, 2), 0),
        (Need(1.0), Node(16, 2), 2),
        (Need(0.1), Node(16, 1), 10),
        (Need(0.3), Node(16, 1), 3),
        (Need(0.25), Node(2, 1), 2),  # each has a CPU to itself
        (Need(0.5), Node(16, 0), 0),
    ],
)
def test_room_on_a_node(need, node, fit):
    assert need.times_on(node) == fit


def test_without_ray_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"^--on ray needs the package ray; run: pip install 'leakgauge\[ray\]'$"):
        connected("auto").__enter__()


@pytest.fixture
def ray():
    pytest.importorskip("ray", reason="the package ray is not installed")
    return ray_module()


def test_a_cluster_that_does_not_answer_is_waited_for_so_long_and_no_longer(ray, monkeypatch):
    monkeypatch.setattr(ray_cluster, "_PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = "{}:{}".format(*mute.getsockname())
        with pytest.raises(
            BadInput, match=f"--on ray must be a running cluster, got {address}: no answer within 0.5 s"
        ):
            connected(address).__enter__()
    with pytest.raises(BadInput, match=f"got {address}: .*refused"):
        connected(address).__enter__()


def test_an_address_that_is_none_is_refused_with_the_reason(ray):
    with pytest.raises(BadInput, match="got nonsense: ValueError: Invalid address format: nonsense; start one with"):
        connected("nonsense").__enter__()
    with pytest.raises(BadInput, match="ADDRESS must be auto or HOST:PORT, got ray://there:10001; run this on a node"):
        connected("ray://there:10001").__enter__()


def test_a_cluster_that_cannot_be_joined_is_refused_in_one_line(ray, monkeypatch):
    def mismatch(**_):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0\nAnd more.")

    monkeypatch.setattr(ray_cluster, "_refuse_unreachable", lambda _: None)
    monkeypatch.setattr(ray, "init", mismatch)
    with pytest.raises(BadInput, match=r"got there:1: Version mismatch: The cluster was started with: Ray: 1\.0"):
        connected("there:1").__enter__()
    with pytest.raises(LeakgaugeError, match="Ray could not be started on this machine: Version mismatch"):
        connected().__enter__()


def test_a_cluster_that_was_joined_before_is_left_as_it_was(ray, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("not ours to end"))
    with connected("auto") as cluster:
        assert cluster.version == ray.__version__


def cluster_that(ray, answer):
    """A cluster of which `get` gives or raises the answer."""

    def get(_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    fake = SimpleNamespace(get=get, exceptions=ray.exceptions, remote=lambda cls: cls, __version__="0")
    return RayCluster(fake)


def test_words_and_the_end_of_them(ray):
    cluster = cluster_that(ray, pickle.dumps(Progress(0.5)))
    stream = iter(["a reference"])
    assert cluster.receive(stream) == Progress(0.5)
    assert cluster.receive(stream) == Finished()


def test_what_a_loss_is_called(ray):
    errors = ray.exceptions
    died = errors.RayActorError(
        "id", "The actor died.\n\tpid: 1\nThe actor is dead because its node has died. More words.", False, False
    )
    with pytest.raises(Lost, match=r"^its node has died$") as lost:
        cluster_that(ray, died).receive(iter([1]))
    assert not lost.value.memory
    for error, memory in ((errors.ObjectLostError("0" * 56, None, ""), False), (errors.OutOfMemoryError("full"), True)):
        with pytest.raises(Lost) as lost:
            cluster_that(ray, error).receive(iter([1]))
        assert lost.value.memory == memory


def test_a_node_that_cannot_start_our_code_is_a_refusal_and_no_loss(ray):
    text = "The actor died because of an error raised in its creation task, ...\nModuleNotFoundError: No module 'x'"
    refused = cluster_that(ray, ray.exceptions.RayActorError("id", text, True, False)).receive(iter([1]))
    assert isinstance(refused, Refused)
    assert refused.expected
    assert "(ModuleNotFoundError: No module 'x'); install it there" in refused.text


def test_nodes_that_are_gone_do_not_count():
    nodes = [
        {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}},
        {"Alive": False, "Resources": {"CPU": 4.0}},
        {"Alive": True, "Resources": {}},
    ]
    fake = SimpleNamespace(nodes=lambda: nodes, remote=lambda cls: cls, __version__="0")
    assert RayCluster(fake).nodes() == [Node(4.0, 1.0), Node(0.0, 0.0)]
