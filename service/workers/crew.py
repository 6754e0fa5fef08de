"""The worker processes: started by the owner on its own listening socket, started again when they die, ended before it ends."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from service.workers.follower import Follower
from service.workers.frames import Frame
from service.workers.publish import Publisher

log = logging.getLogger(__name__)
LOOK_S = 0.1
QUICK_DEATH_S, REST_S, MOST_REST_S = 10.0, 0.2, 5.0
"""A worker that lived no longer than QUICK_DEATH_S is started again after a pause, which doubles from REST_S each time."""


@dataclass(frozen=True)
class Orders:
    """A worker's command line: descriptors it inherits, where the owner's API answers, how requests are judged."""

    listening_fd: int
    line_fd: int
    owner_socket: str
    store: str
    host: str
    require_token: bool
    rate_per_s: float | None
    log_format: Literal["text", "json"]


@dataclass
class _Member:
    process: subprocess.Popen[bytes]
    follower: Follower
    began_s: float


class Crew:
    """`count` workers. `orders` makes what one is told from the descriptor of its line; `taken` gets what they hand over."""

    def __init__(self, count: int, orders: Callable[[int], Orders], publisher: Publisher, taken: Callable[[Frame], None]) -> None:
        self._orders, self._publisher, self._taken = orders, publisher, taken
        self._members: list[_Member | None] = [None] * count
        self._rest_s, self._due_s = [REST_S] * count, [0.0] * count
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="phasecast-crew", daemon=True)
        self.restarts = 0

    @property
    def alive(self) -> int:
        """Workers that run (count)."""
        return sum(member is not None and member.process.poll() is None for member in self._members)

    def start(self) -> None:
        """Start the workers, and keep them alive until `stop`."""
        self._fill()
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Let the workers finish, for so long at most, and take up all they hand over; nothing where that is done."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        members, self._members = [member for member in self._members if member is not None], []
        for member in members:
            member.process.terminate()
        until_s = time.monotonic() + grace_s
        for member in members:
            try:
                member.process.wait(max(0.1, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("worker %d did not end in %g s and was killed", member.process.pid, grace_s)
                member.process.kill()
                member.process.wait()
            member.follower.join(1.0)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            for place, member in enumerate(self._members):
                if member is not None and (member.process.poll() is not None or not member.follower.alive):
                    self._bury(place, member)
            self._fill()

    def _bury(self, place: int, member: _Member) -> None:
        """Take down a worker that has died, or that no frame reaches any more."""
        member.process.kill()
        status = member.process.wait()
        member.follower.join(1.0)
        now_s = time.monotonic()
        quick = now_s - member.began_s < QUICK_DEATH_S
        self._due_s[place] = now_s + self._rest_s[place] if quick else now_s
        self._rest_s[place] = min(2.0 * self._rest_s[place], MOST_REST_S) if quick else REST_S
        self._members[place] = None
        self.restarts += 1
        log.error("worker %d ended with %d; another takes its place", member.process.pid, status)

    def _fill(self) -> None:
        for place, member in enumerate(self._members):
            if member is None and time.monotonic() >= self._due_s[place]:
                try:
                    self._members[place] = self._begun()
                except OSError:  # no process or descriptor is to be had at the moment
                    log.exception("no worker could be started, tried again in %g s", MOST_REST_S)
                    self._due_s[place] = time.monotonic() + MOST_REST_S

    def _begun(self) -> _Member:
        """A new worker: it inherits the listening socket and one end of a pair, nothing else."""
        mine, its = socket.socketpair()
        orders = self._orders(its.fileno())
        with its:
            process = subprocess.Popen(  # noqa: S603  our own command
                command(orders),
                pass_fds=(orders.listening_fd, orders.line_fd),
                process_group=0,  # an interrupt from the keyboard is the owner's, which ends its workers in order
                stdin=subprocess.DEVNULL,
            )
        follower = Follower(mine, self._taken)
        self._publisher.add(follower)
        return _Member(process, follower, time.monotonic())


def command(orders: Orders) -> Sequence[str]:
    """The command line of a worker."""
    return [sys.executable, "-m", "service.http.worker", json.dumps(asdict(orders))]


def orders_of(text: str) -> Orders:
    """The orders on a command line."""
    return Orders(**json.loads(text))
