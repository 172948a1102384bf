"""A Flower app as it is, server and clients in one process: no Ray, no network, one client after another."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class InProcess:
    """A Grid that hands each message to the app's own ClientApp at once and keeps the answers."""

    def __init__(self, client_app: Any, nodes: int, run_config: dict[str, Any]) -> None:
        from flwr.app import Context, RecordDict

        self._app, self._answers, self._numbers = client_app, dict[str, Any](), itertools.count()
        self._contexts = {
            node + 1: Context(
                run_id=1,
                node_id=node + 1,
                node_config={"partition-id": node, "num-partitions": nodes},
                state=RecordDict(),
                run_config=dict(run_config),
            )
            for node in range(nodes)
        }

    def get_node_ids(self) -> list[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        names = []
        for message in messages:
            name = f"message-{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = name
            self._answers[name] = self._app(message, self._contexts[message.metadata.dst_node_id])
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        return [self._answers.pop(name) for name in message_ids]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:  # noqa: ARG002
        return self.pull_messages(self.push_messages(messages))


def run_app(folder: Path, recorded: Path, nodes: int, **config: Any) -> None:
    """Runs the app in `folder` (its pyproject.toml says what it is) and records what its server sees."""
    import importlib

    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from leakgauge.integrations.flower_recording import recorded_app

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
    described = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    run_config = flat(described.get("config", {})) | config
    server, client = (
        getattr(importlib.import_module(head), name)
        for head, _, name in (described["components"][part].partition(":") for part in ("serverapp", "clientapp"))
    )
    grid = InProcess(client, nodes, run_config)
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=run_config)
    recorded_app(server, recorded)(grid, context)


def flat(nested: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Keys with dots between them, as Flower hands them to an app."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value}
    return found
