"""`leakgauge data list|verify|fetch`."""

from __future__ import annotations

import hashlib
import http.server
import threading

import pytest

from leakgauge import catalog
from leakgauge.data._dataset import DataSource, Download, StandardFile

CONTENT = b"a data set" * 100


@pytest.fixture
def toy(monkeypatch):
    """A data set called toy, published on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path != "/toy":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *_):
            pass

    checksum = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def publish(path="/toy", checksum=checksum):
            item = Download(f"http://127.0.0.1:{server.server_port}{path}", "toy/data", checksum, len(CONTENT))
            source = DataSource(
                "toy",
                "a toy",
                "nobody",
                embedded=False,
                read=lambda *_: pytest.fail("not read"),
                files=(StandardFile(("toy/data",), checksum),),
                downloads=(item,),
            )
            monkeypatch.setitem(catalog.find("data"), "toy", source)

        publish()
        yield publish
        server.shutdown()
        thread.join()


def test_list_says_what_is_here(leakgauge, tmp_path):
    rows = {row["name"]: row for row in leakgauge("data", "list", "--json").json}
    assert rows.keys() == catalog.find("data").keys()
    assert rows["digits"] | {"embedded": True, "present": True, "samples": 1797} == rows["digits"]
    assert rows["mnist"] | {"embedded": False, "present": False, "samples": 70000} == rows["mnist"]
    shown = leakgauge("data", "list", "--data-root", tmp_path / "mine").out
    assert all(name in shown for name in rows)
    assert str(tmp_path / "mine") in shown


def test_fetch_downloads_once_and_verify_agrees(leakgauge, toy, tmp_path):
    target = tmp_path / "root" / "toy" / "data"
    fetched = leakgauge("data", "fetch", "toy", "--data-root", "root")
    assert fetched.code == 0
    assert fetched.out.strip() == "root/toy/data"
    assert target.read_bytes() == CONTENT
    again = leakgauge("data", "fetch", "toy", "--data-root", "root", "--json")
    assert again.json == {"toy": []}
    assert "already there" in again.err
    checked = leakgauge("data", "verify", "toy", "--data-root", "root", "--json")
    assert checked.code == 0
    assert [row["status"] for row in checked.json] == ["ok"]


def test_verify_exits_with_1_if_a_file_differs(leakgauge, toy, tmp_path):
    (tmp_path / "root" / "toy").mkdir(parents=True)
    (tmp_path / "root" / "toy" / "data").write_bytes(b"something else")
    outcome = leakgauge("data", "verify", "toy", "--data-root", "root")
    assert outcome.code == 1
    assert "differs" in outcome.out


def test_verify_says_what_is_missing_of_the_sets_that_were_asked_for(leakgauge):
    assert leakgauge("data", "verify", "digits").code == 0
    outcome = leakgauge("data", "verify", "digits", "mnist", "--json")
    assert outcome.code == 1
    assert {row["status"] for row in outcome.json if row["name"] == "digits"} == {"ok"}
    assert {row["status"] for row in outcome.json if row["name"] == "mnist"} == {"missing"}


@pytest.mark.parametrize(
    "published", [{"path": "/gone/toy"}, {"checksum": "sha256:" + "0" * 64}], ids=["gone", "other contents"]
)
def test_failed_download_is_one_line_and_leaves_nothing_in_place(leakgauge, toy, one_line, tmp_path, published):
    toy(**published)
    line = one_line(leakgauge("data", "fetch", "toy", "--data-root", "root"))
    assert "toy" in line
    assert not (tmp_path / "root" / "toy" / "data").exists()


def test_unknown_set_stops_the_command_before_the_first_download(leakgauge, toy, one_line, tmp_path):
    one_line(leakgauge("data", "fetch", "toy", "nonsense", "--data-root", "root"))
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("command", ["list", "verify", "fetch"])
def test_help_has_an_example(leakgauge, command):
    outcome = leakgauge("data", command, "--help")
    assert outcome.code == 0
    assert f"leakgauge data {command}" in outcome.out
    assert "Example" in outcome.out
