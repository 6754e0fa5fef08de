"""A worker's side: what the owner publishes becomes this process's lineup, and what it answers goes back to the owner.

Two threads: one speaks on the socket and never computes, so that the owner's calls for answers are met at once; the other folds
what has come into the next model and keeps what was asked for lately ready, while the thread that answers takes the model whole.
"""

from __future__ import annotations

import logging
import queue
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from calibrate.conformal import saved
from calibrate.conformal.wrap import Calibrated
from calibrate.evidence.reliability import Reliability
from predictors.model import changes_of
from service.answerers import answering, fitted_as_of
from service.engine import Question, Serving
from service.lineup import Lineup
from service.refit import folded
from service.schemas import ReadyOut
from service.warming import Recent
from service.workers.frames import Frame, Kind, encoded, read
from service.workers.records import attempt_of, row_records, rows_of, table_of, tokens_of
from telemetry.errors import BadField, UnknownId
from telemetry.ledger import PlanAnswer, Prediction
from telemetry.tables import Token

log = logging.getLogger(__name__)
FLUSH_S = 0.02
"""So often answers go to the owner where it does not ask for them before."""
SILENT_S, BEHIND_S = 2.0, 1.0
"""A worker is not ready where it has heard nothing for so long, or not caught up with what it heard of for so long."""


class AskOwner(Exception):
    """This process cannot tell; the owner may."""


class Followed(Lineup):
    """The lineup of a worker: a running attempt, or a phase, that it has not heard of may have been committed just now."""

    def running_question(self, attempt_id: str, phase: str, elapsed_s: float | None) -> Question:
        """As the owner answers it, or AskOwner."""
        try:
            return super().running_question(attempt_id, phase, elapsed_s)
        except (UnknownId, BadField) as error:
            raise AskOwner from error


class Following:
    """Keeps `lineup` and `known` as the owner publishes them, until the owner is gone, which `gone` is then told."""

    def __init__(self, line: socket.socket, lineup: Followed, gone: Callable[[], None]) -> None:
        self.lineup, self._line, self._gone = lineup, line, gone
        self.known: Mapping[str, Token] = {}
        self.counts: deque[list[Any]] = deque()
        self._ready: ReadyOut
        self._told = threading.Event()
        self._heard_s, self._even_s = time.monotonic(), time.monotonic()
        self._owner_commit: int | None = None
        self._base: Serving | None = None
        self._recent = Recent()
        self._came: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._speaking = threading.Thread(target=self._speak, name="phasecast-line", daemon=True)
        self._applying = threading.Thread(target=self._apply_all, name="phasecast-follow", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._speaking.start()
        self._applying.start()

    def stop(self) -> None:
        """Hand over what is left and close."""
        self._stopping.set()
        self._speaking.join()
        self._applying.join()
        self._line.close()

    def await_first_word(self) -> None:
        """Wait until the owner has said how it stands: from then on it can be asked."""
        self._told.wait()

    def readiness(self) -> ReadyOut:
        """How the owner stands, with what this process answers from; not ready where that is not what the owner answers from."""
        serving, trouble = self.lineup.serving, self.trouble()
        here = {} if serving is None else {"model_id": serving.model_id, "phases": list(serving.model.phases)}
        told = self._ready.model_copy(update=here | {"learned_to": self.lineup.learned_to})
        if trouble is not None:
            return told.model_copy(update={"ready": False, "trouble": trouble})
        return told.model_copy(update={"ledger_pending": told.ledger_pending + len(self.lineup.ledger)})

    def trouble(self) -> str | None:
        """Why this process should not be asked now; None while it gives the owner's answers."""
        now_s = time.monotonic()
        if now_s - self._heard_s > SILENT_S:
            return f"nothing heard for {now_s - self._heard_s:.1f} s from the process that owns the store"
        if now_s - self._even_s > BEHIND_S:
            return f"behind: this process answers as of commit {self._commit()}, the owner as of {self._owner_commit}"
        return None

    def _commit(self) -> int | None:
        return None if self.lineup.serving is None else self.lineup.serving.model.commit

    def _speak(self) -> None:
        """Speak until stopped or the owner is gone; a fault ends the process, whose answers nobody would keep."""
        try:
            self._speak_on()
        except Exception:
            log.exception("the line to the owner failed; this process ends and another takes its place")
            self._gone()
        self._came.put(None)

    def _speak_on(self) -> None:
        """Read frames; send answers on when asked to, and every now and then; at first only that this process is there."""
        self._send(Frame(Kind.GIVEN, {"rows": [], "counts": []}))
        flush_at_s = 0.0
        while not self._stopping.is_set():
            if time.monotonic() >= flush_at_s:
                self._hand_over()
                flush_at_s = time.monotonic() + FLUSH_S
            if not select.select([self._line], [], [], FLUSH_S)[0]:
                continue
            frame = read(self._line)
            if frame is None:
                self._gone()
                return
            self._heard_s = time.monotonic()
            self._meet(frame)
        self._hand_over()

    def _meet(self, frame: Frame) -> None:
        """Do at once what the owner waits for; all else in its order."""
        if frame.kind is Kind.TOKENS:
            self.known = tokens_of(frame.told)
        elif frame.kind is Kind.GATHER:
            self._hand_over()
            self._send(Frame(Kind.GATHERED, frame.told))
        else:
            self._came.put(frame)

    def _hand_over(self) -> None:
        """Send the ledger rows and counts there are."""
        ledger, counts = self.lineup.ledger, self.counts
        rows = [ledger.popleft() for _ in range(len(ledger))]
        told = [counts.popleft() for _ in range(len(counts))]
        if rows or told:
            self._recent.note(rows)
            self._send(Frame(Kind.GIVEN, {"rows": row_records(rows), "counts": told}))

    def _send(self, frame: Frame) -> None:
        try:
            self._line.sendall(encoded(frame))
        except OSError:
            self._gone()

    def _apply_all(self) -> None:
        """Apply frames in order; a fault ends the process, since all that follows would be applied to something else."""
        try:
            while (frame := self._came.get()) is not None and not self._stopping.is_set():
                self._apply(frame)
                self._note_whether_even()
                if self.lineup.serving is not None and self._came.empty():
                    self._recent.warm(self.lineup.serving.model, lambda: self._came.empty() and not self._stopping.is_set())
        except Exception:
            log.exception("what the owner published could not be applied; this process ends and another takes its place")
            self._gone()

    def _apply(self, frame: Frame) -> None:
        lineup, told = self.lineup, frame.told
        match frame.kind:
            case Kind.MODEL:
                model = saved.unpacked(frame.body)
                assert isinstance(model, Calibrated)
                lineup.calibrated = Serving(model, told["model_id"])
            case Kind.CHANGES:
                if lineup.calibrated is not None:
                    going = lambda: not self._stopping.is_set()  # noqa: E731  nobody will ask a process that ends
                    further = folded(lineup.calibrated.model, changes_of(table_of(frame.body)), going)
                    lineup.calibrated = Serving(further, lineup.calibrated.model_id)
            case Kind.RUNNING:
                now = {**lineup.running, **{key: record and attempt_of(record) for key, record in told.items()}}
                lineup.running = {key: attempt for key, attempt in now.items() if attempt is not None}
            case Kind.RELIABILITY:
                lineup.reliability = {name: Reliability.of(known) for name, known in told.items()}
            case Kind.BEAT:
                self._owner_commit = told["commit"]
                self._serve_as(told["answers_as"])
                self._ready = ReadyOut.model_validate_json(told["ready"])
                lineup.learned_to = self._ready.learned_to
                self._told.set()

    def _serve_as(self, model_id: str | None) -> None:
        """Let who answers at the owner answer here as well; a rule, whose state is not published, answers at the owner alone."""
        lineup, base = self.lineup, self.lineup.calibrated
        if base is None or model_id is None or fitted_as_of(model_id) is not None:
            lineup.serving = None
        elif base is not self._base or lineup.serving is None or lineup.serving.model_id != model_id:
            lineup.serving, self._base = Serving(answering(base.model, model_id), model_id), base

    def _note_whether_even(self) -> None:
        base = self.lineup.calibrated
        if self._owner_commit is None or (base is not None and base.model.commit == self._owner_commit):
            self._even_s = time.monotonic()


def taken(frame: Frame) -> tuple[list[Prediction | PlanAnswer], list[list[Any]]]:
    """What a worker handed over: ledger rows, and counts as it kept them."""
    return rows_of(frame.told["rows"]), frame.told["counts"]
