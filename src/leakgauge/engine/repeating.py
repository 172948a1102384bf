"""The same launches again and again: recorded once on a GPU and replayed: small networks do not wait for Python.

A body works in place on fixed tensors and never asks the device for a value. Its first calls run as they are (they are
real work, and warm the allocator up); then its launches are captured in a CUDA graph. A body that cannot be captured,
because a model of the user's own needs values on the host, goes on uncaptured.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_WARM_UP = 3  # calls before the capture, on a stream of their own as captures want it


class Repeated:
    """Calls `body`; on a GPU from the fourth call on by replay."""

    def __init__(self, body: Callable[[], None], device: torch.device) -> None:
        self._body = body
        self._device = device
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._plain = device.type != "cuda"

    def __call__(self) -> None:
        self._calls += 1
        if self._calls > _WARM_UP and self._graph is None and not self._plain:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
        elif self._plain:
            self._body()
        else:
            self._beside()

    def _beside(self) -> None:
        """The body on a side stream, in order with the work before and behind it."""
        here, side = torch.cuda.current_stream(self._device), torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(here)
        with torch.cuda.stream(side):
            self._body()
        here.wait_stream(side)

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._body()
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            torch.cuda.synchronize(self._device)
            self._plain = True
        else:
            self._graph = graph
