"""One worker as the owner sees it: frames to it are queued, so that nobody waits for it; what it sends is taken up at once."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable

from service.workers.frames import Frame, Kind, encoded, read

PATIENCE_S = 30
"""A worker that takes nothing off its socket for so long is cut off: it ends, and a new one starts from what stands then."""


class Follower:
    """The owner's end of a worker's socket; `taken` gets every frame of ledger rows and counts, from a thread of its own.

    `met` says whether it has been heard of: before it answers anybody it sends a first frame.
    """

    def __init__(self, line: socket.socket, taken: Callable[[Frame], None]) -> None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", PATIENCE_S, 0))
        self._line, self._taken = line, taken
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._heard = threading.Condition()
        self._gathered = 0
        self.alive, self.met = True, False
        self._threads = [
            threading.Thread(target=target, name=f"phasecast-worker-{name}", daemon=True)
            for name, target in (("send", self._send), ("receive", self._receive))
        ]
        for thread in self._threads:
            thread.start()

    def send(self, frame: bytes) -> None:
        """Queue a frame; it is dropped where the worker has gone."""
        if self.alive:
            self._queue.put(frame)

    def ask_gather(self, number: int) -> None:
        """Ask for everything the worker has answered so far."""
        self.send(encoded(Frame(Kind.GATHER, number)))

    def has_gathered(self, number: int, until_s: float) -> bool:
        """Wait for what was asked for under `number`, until a time of the monotonic clock at most."""
        with self._heard:
            left_s = max(0.0, until_s - time.monotonic())
            return self._heard.wait_for(lambda: self._gathered >= number or not self.alive, left_s)

    def join(self, most_s: float) -> None:
        """Wait until all that the worker sent before it closed its end has been taken up; then close this end."""
        self._threads[1].join(most_s)
        self._end()
        self._threads[0].join(1.0)
        self._line.close()

    def _send(self) -> None:
        while (frame := self._queue.get()) is not None:
            try:
                self._line.sendall(frame)
            except OSError:
                self._end()
                return

    def _receive(self) -> None:
        while (frame := read(self._line)) is not None:
            self.met = True
            if frame.kind is Kind.GATHERED:
                with self._heard:
                    self._gathered = max(self._gathered, frame.told)
                    self._heard.notify_all()
            else:
                self._taken(frame)
        self._end()

    def _end(self) -> None:
        """Wake whoever waits for this worker, and both threads."""
        with self._heard:
            self.alive = False
            self._heard.notify_all()
        self._queue.put(None)
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
