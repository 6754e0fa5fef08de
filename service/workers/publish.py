"""What the owner publishes to workers: its model whole when it was swapped, else what it has learned, commit by commit.

A model is an immutable fold over changes, the same to the bit wherever it is folded; so a worker that has the owner's model and
the changes since has the owner's model of now, and gives its answers.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

from calibrate.conformal import saved
from calibrate.conformal.wrap import Calibrated
from calibrate.evidence.reliability import Reliability
from service.answerers import file_of, fitted_as_of
from service.engine import Serving
from service.lineup import Lineup, RunningAttempt
from service.workers.follower import Follower
from service.workers.frames import Frame, Kind, encoded
from service.workers.records import attempt_record, table_bytes, token_records
from telemetry import asof
from telemetry.errors import StoreError
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Token
from telemetry.tokens import Keyring

log = logging.getLogger(__name__)
LOOK_S = 0.02
"""Pause between two looks at what is published; a look that finds nothing new compares a few references."""
BEAT_S = 0.25
REVOKED_S = 0.25
"""A commit that revokes a token waits so long for workers to have heard of it at most: one that hangs must not stop writing."""


class Publisher:
    """Watches what upkeep publishes and passes it on, on a thread of its own; `ready` tells how the owner stands, as JSON."""

    def __init__(self, store: Store, lineup: Lineup, keyring: Keyring, ready: Callable[[], str]) -> None:
        self._lineup, self._keyring, self._ready = lineup, keyring, ready
        self._reader = store.reader()
        self._followers: tuple[Follower, ...] = ()
        self._joining: list[Follower] = []
        self._lock = threading.Lock()
        self._gathers = itertools.count(1)
        self._base: Serving | None = None
        self._answers_as: str | None = None
        self._running: Mapping[str, RunningAttempt] = {}
        self._reliability: Mapping[str, Reliability] = {}
        self._beat_at_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="phasecast-publish", daemon=True)
        store.subscribe(self._committed)  # after the keyring, which then knows what was committed

    def start(self) -> None:
        """Begin to pass on."""
        self._thread.start()

    def stop(self) -> None:
        """End; workers must have ended before."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._reader.close()

    def add(self, follower: Follower) -> None:
        """Have a worker told everything once it has been heard of, and all that is new from then on."""
        with self._lock:
            self._joining.append(follower)

    def gather(self, most_s: float) -> None:
        """Have every worker hand over the ledger rows of answers it has given by now, waiting so long for all at most."""
        followers = self._followers
        number = next(self._gathers)
        for follower in followers:
            follower.ask_gather(number)
        until_s = time.monotonic() + most_s
        late = [follower for follower in followers if not follower.has_gathered(number, until_s)]
        if late:
            log.warning("%d workers did not hand over their answers in %g s; they are taken up later", len(late), most_s)

    def look(self) -> None:
        """Pass on what is new since the last look, then all there is to workers that have come up."""
        with self._lock:
            joining = [follower for follower in self._joining if follower.met]
            self._joining = [follower for follower in self._joining if follower.alive and not follower.met]
        frames = self._news()
        for follower in self._followers:
            for frame in frames:
                follower.send(frame)
        self._followers = tuple(follower for follower in self._followers if follower.alive)
        if joining:
            whole = self._whole()
            self._followers += tuple(joining)
            for follower in joining:
                for frame in whole:
                    follower.send(frame)

    def _committed(self, _commit: int, batches: Iterable[Batch]) -> None:
        """Tell workers of tokens before their commit is acknowledged: one that was revoked is taken nowhere any more."""
        if any(isinstance(row, Token) for batch in batches for row in batch.rows):
            frame = _tokens_frame(self._keyring.known)
            for follower in self._followers:
                follower.send(frame)
            self.gather(REVOKED_S)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                self.look()
            except StoreError as error:
                log.warning("nothing could be published to workers, which answer from what they have: %s", error)
            except Exception:
                log.exception("nothing could be published to workers, which answer from what they have")

    def _news(self) -> list[bytes]:
        """Frames that bring a worker from the last look to this one; what they tell stands in `self` from then on."""
        frames, lineup, due = list[bytes](), self._lineup, time.monotonic() >= self._beat_at_s
        base, serving = lineup.calibrated or lineup.serving, lineup.serving
        if base is not None and serving is not None and _fits(serving, base):
            frames += self._model_since(self._base, base)
            due = due or serving.model_id != self._answers_as
            self._base, self._answers_as = base, serving.model_id
        if (running := lineup.running) is not self._running:
            frames.append(_running_frame(self._running, running))
            self._running = running
        if (reliability := lineup.reliability) is not self._reliability:
            frames.append(_reliability_frame(reliability))
            self._reliability = reliability
        if frames or due:
            frames.append(self._beat())
            self._beat_at_s = time.monotonic() + BEAT_S
        return frames

    def _whole(self) -> list[bytes]:
        """Frames that tell everything, as of the last look."""
        model = [] if self._base is None else _model_frames(self._base)
        running = _running_frame({}, self._running)
        return [*model, running, _tokens_frame(self._keyring.known), _reliability_frame(self._reliability), self._beat()]

    def _model_since(self, before: Serving | None, now: Serving) -> list[bytes]:
        """How one model becomes the next: by what became known, or, after a swap, whole."""
        if not self._followers or before is now:
            return []
        if before is None or before.model_id != now.model_id:
            return _model_frames(now)
        if before.model.commit == now.model.commit:
            return []
        found = asof.changes(self._reader, before.model.commit, now.model.commit)
        return [encoded(Frame(Kind.CHANGES, None, table_bytes(found)))]

    def _beat(self) -> bytes:
        """Who answers, as of which commit, and how the owner stands: what came before it takes effect with it."""
        commit = None if self._base is None or not isinstance(self._base.model, Calibrated) else self._base.model.commit
        return encoded(Frame(Kind.BEAT, {"commit": commit, "answers_as": self._answers_as, "ready": self._ready()}))


def _fits(serving: Serving, base: Serving) -> bool:
    """Whether what serves belongs to this model: upkeep replaces one after the other."""
    return fitted_as_of(serving.model_id) is not None or file_of(serving.model_id) == base.model_id


def _model_frames(serving: Serving) -> list[bytes]:
    """A whole model. Only one of record, which an earlier program saved, can't be sent: until the first fit the owner answers."""
    if not isinstance(serving.model, Calibrated):
        return []
    return [encoded(Frame(Kind.MODEL, {"model_id": serving.model_id}, saved.packed(serving.model)))]


def _running_frame(before: Mapping[str, RunningAttempt], now: Mapping[str, RunningAttempt]) -> bytes:
    """Running attempts that are new or other than before, and the ones that have ended as None."""
    changed = {key: attempt_record(attempt) for key, attempt in now.items() if before.get(key) is not attempt}
    return encoded(Frame(Kind.RUNNING, changed | dict.fromkeys(before.keys() - now.keys())))


def _tokens_frame(tokens: Mapping[str, Token]) -> bytes:
    return encoded(Frame(Kind.TOKENS, token_records(tokens)))


def _reliability_frame(reliability: Mapping[str, Reliability]) -> bytes:
    return encoded(Frame(Kind.RELIABILITY, {name: asdict(known) for name, known in reliability.items()}))
