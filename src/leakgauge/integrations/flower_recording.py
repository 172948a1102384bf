"""Record what a Flower server sees, without a change to the app.

    from their_app.server_app import app as theirs
    app = recorded_app(theirs, "recorded")

and name this file's `app` as the `serverapp`. Everything a server sends and receives goes through its Grid, whatever
its strategy does with it, so recording happens there: for every client and round the weights that were sent and how far
they moved until they came back. The folder is bounded (`Recorder`), and `leakgauge audit --recorded` attacks it.

The learning rate is read from the `lr` that the server sends with the model, the samples from the metric
`num-examples`; what the server does not know (local epochs, the mini-batch) can be given here or on the command line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from leakgauge.errors import LeakgaugeError
from leakgauge.integrations._flower_arrays import difference, flower, only_record, tensors_in
from leakgauge.recording.recorded_folder import Origin
from leakgauge.recording.recorder import Recorder

_LOG = logging.getLogger("leakgauge")
_SAMPLES, _RATES = "num-examples", ("lr", "learning-rate", "learning_rate")
_ROUNDS = ("server-round", "server_round", "round")
Note = tuple[dict[str, Tensor], dict[str, Any]]  # the weights that were sent, and what was said with them


def recorded_app(app: Any, folder: str | Path | Recorder, **known: Any) -> Any:
    """A ServerApp that runs `app` as it is and records what it sees. `known` is as for `RecordingGrid`."""
    flower()
    from flwr.serverapp import ServerApp

    wrapper = ServerApp()
    recorder = folder if isinstance(folder, Recorder) else Recorder(folder)

    @wrapper.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        app(RecordingGrid(grid, recorder, **known), context)

    return wrapper


class RecordingGrid:
    """A Grid that passes everything on and writes down what clients send back after training.

    What cannot be read is counted in `unreadable` and logged; the federation goes on.
    """

    def __init__(
        self,
        grid: Any,
        recorder: Recorder,
        *,
        lr: float | None = None,
        epochs: int = 1,
        batch_size: int = 0,
        batchnorm: str = "train",
        names: Sequence[str] = (),  # list(model.state_dict()), for apps that send bare arrays
    ) -> None:
        self._grid, self._recorder, self._names = grid, recorder, tuple(names)
        self._known: dict[str, Any] = {"lr": lr, "epochs": epochs, "batch_size": batch_size, "batchnorm": batchnorm}
        self._sent: dict[str, Note] = {}  # by message id
        self._weights: tuple[Any, dict[str, Tensor]] | None = None  # one record goes to many: read once
        self.unreadable = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        return self._passed_on(list(messages), self._grid.push_messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        replies = list(self._grid.pull_messages(message_ids))
        for reply in replies:
            self._record(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
        sent = list(messages)
        replies = self._passed_on(sent, partial(self._grid.send_and_receive, timeout=timeout))
        for reply in replies:
            self._record(reply)
        for message in sent:  # who did not answer in time is not waited for
            self._sent.pop(message.metadata.message_id, None)
        return replies

    def _passed_on(self, messages: Sequence[Any], send: Callable[[Sequence[Any]], Iterable[Any]]) -> list[Any]:
        notes = [self._note(message) for message in messages]  # some grids drop a message's content when they send it
        answers = list(send(messages))
        pairs = zip(messages, notes, strict=True)  # by the id that each message got when it left
        self._sent |= {message.metadata.message_id: note for message, note in pairs if note is not None}
        return answers

    def _note(self, message: Any) -> Note | None:
        if not str(message.metadata.message_type).startswith("train"):
            return None
        try:
            _, record = only_record(message.content, "to a client")
            if self._weights is None or self._weights[0] is not record:
                self._weights = (record, tensors_in(record, self._names))
            said = {k: v for config in message.content.config_records.values() for k, v in config.items()}
            return self._weights[1], said | {"group": message.metadata.group_id}
        except LeakgaugeError as error:
            self._failed(error)
            return None

    def _record(self, reply: Any) -> None:
        before = self._sent.pop(reply.metadata.reply_to_message_id, None)
        if before is None or reply.has_error():
            return
        weights, said = before
        try:
            _, record = only_record(reply.content, "from a client")
            update = difference(tensors_in(record, self._names), weights)
            origin = self._origin(reply, said)
            tensors, buffers = ({n: t[0] for n, t in part.items()} for part in (update.tensors, update.buffers))
            self._recorder.add("weight_delta", tensors, origin, buffers=buffers, weights=weights)
        except LeakgaugeError as error:
            self._failed(error)

    def _origin(self, reply: Any, said: dict[str, Any]) -> Origin:
        metrics = {k: v for record in reply.content.metric_records.values() for k, v in record.items()}
        samples = metrics.get(_SAMPLES)
        known = dict(self._known)
        if known["lr"] is None:
            rate = next((said[key] for key in _RATES if key in said), None)
            known["lr"] = float(rate) if isinstance(rate, (int, float)) else None
        number = next((said[key] for key in _ROUNDS if key in said), said["group"])
        return Origin(
            samples=int(samples) if isinstance(samples, (int, float)) and samples >= 1 else None,
            client=str(reply.metadata.src_node_id),
            round=int(number) if (str(number).isascii() and str(number).isdigit()) else 0,
            **known,
        )

    def _failed(self, error: LeakgaugeError) -> None:
        self.unreadable += 1
        _LOG.warning("not recorded: %s", error)
