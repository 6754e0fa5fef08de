"""Fits in the background and brings the fitted model up to date: state at c = fold(fit as of f, changes f+1 .. c)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from predictors import hazards, modelfile
from predictors.frames import frame_of
from predictors.model import Model, changes_of
from service.engine import Serving
from service.settings import models_folder
from telemetry import asof
from telemetry.errors import DamagedStore
from telemetry.ledger import ModelFile
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import Reader

log = logging.getLogger(__name__)
KEPT_FILES = 3
GROWTH = 0.1
"""Growth of what is known, as a share of all, after which a fit is due at once."""
RETRY_S = 5.0
"""Pause after a fit that failed."""


@dataclass(frozen=True)
class Fitted:
    """A saved fit and its row."""

    model: Model
    row: ModelFile


def fit_as_of(reader: Reader, commit: int) -> hazards.HierarchicalHazards:
    """Fit on what was known at the commit."""
    return hazards.fit(frame_of(asof.observations(reader, commit)), commit, hazards.FitSettings())


def fit_and_save(store: Store, commit: int) -> Fitted | None:
    """Fit, write the model file, commit its row; None while nothing has completed. Runs on the fitting thread."""
    with store.reader() as reader:
        model = fit_as_of(reader, commit)
    if not model.phases:
        return None
    folder = models_folder(store.path)
    row = modelfile.save(model, folder, fitted_ns=time.time_ns())
    store.write(Batch((row,)))
    with store.reader() as reader:
        _keep_newest(folder, [known.file_name for known in asof.models(reader, store.last_commit)])
    return Fitted(model, row)


def _keep_newest(folder: Path, names: Sequence[str]) -> None:
    """Remove files of older fits, `names` being newest first: a fit can be made again, and one in reserve serves if it must."""
    for name in names[KEPT_FILES:]:
        if name not in names[:KEPT_FILES]:
            (folder / name).unlink(missing_ok=True)


def caught_up(model: Model, reader: Reader, upto: int) -> Model:
    """Fold what became known since the model's commit, one commit at a time; the model itself if nothing did.

    The step is the commit, whatever the rounds of upkeep were: only so does a replay come to the same state.
    """
    changes = changes_of(asof.changes(reader, model.commit, upto)) if upto > model.commit else []
    for commit, together in groupby(changes, key=lambda change: change.known_at):
        model = model.after(list(together), commit)
    return model


def restored(store: Store, reader: Reader, upto: int) -> Serving | None:
    """The newest model of the store that is undamaged, brought up to `upto`; damaged files are told and passed over.

    So are fits from before what retention removed, since what went from their evidence is not known any more.
    """
    complete_from = asof.complete_from(reader)
    for row in asof.models(reader, store.last_commit):
        if row.fit_commit < complete_from:
            continue
        try:
            model = modelfile.load(models_folder(store.path) / row.file_name, row.sha256)
        except DamagedStore as error:
            log.warning("model %s not used: %s", row.model_id, error)
            continue
        return Serving(caught_up(model, reader, upto), row.model_id)
    return None


class Refitter:
    """One background fit at a time; `share` is the part of the time that fits not called for by growth may take."""

    def __init__(self, store: Store, least_outcomes: int, share: float) -> None:
        self._store = store
        self._least, self._share = least_outcomes, share
        self._started_s, self._rest_until_s, self._retry_at_s = 0.0, 0.0, 0.0
        self.trouble: str | None = None
        """What stopped the last fit, None while all is well."""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="phasecast-fit")
        self._running: Future[Fitted | None] | None = None
        self._total = 0
        self._since_fit = 0

    def learned(self, n_outcomes: int) -> None:
        """Count outcomes learned, towards the next fit."""
        self._total += n_outcomes
        self._since_fit += n_outcomes

    def maybe_start(self, commit: int, *, first: bool) -> None:
        """Start a fit as of `commit` if one is due: the first as soon as anything ended, later ones by growth.

        While little is known a fit is due at every doubling: what one or two outcomes say of scale is soon outgrown. Later on
        it is due when outcomes have grown by a tenth, or as often as a small share of the time allows: work of a new kind is
        placed by fits alone.
        """
        now_s, fitted = time.monotonic(), self._total - self._since_fit
        least = 1 if first else max(1, min(self._least, fitted))
        due = least if now_s >= self._rest_until_s else max(least, GROWTH * self._total)
        if self._running is None and self._since_fit >= due and now_s >= self._retry_at_s:
            self._since_fit = 0
            self._started_s = time.monotonic()
            self._running = self._pool.submit(fit_and_save, self._store, commit)

    def finished(self) -> Fitted | None:
        """The fit that has ended since last asked; an error in it is logged, and the model before it serves on."""
        if self._running is None or not self._running.done():
            return None
        future, self._running = self._running, None
        now_s = time.monotonic()
        self._rest_until_s = now_s + (now_s - self._started_s) * (1.0 / self._share - 1.0)
        error = future.exception()
        self.trouble = None
        if error is not None:
            log.error("background fit failed, the model before it serves on", exc_info=error)
            self.trouble = f"fit: {type(error).__name__}: {error}"
            self._since_fit, self._retry_at_s = self._total, now_s + RETRY_S
            return None
        return future.result()

    def wait(self) -> None:
        """Wait for a fit under way; `finished` then has it."""
        if self._running is not None:
            wait([self._running])

    def close(self) -> None:
        """Wait for a fit under way: its file and row belong together."""
        self._pool.shutdown(wait=True, cancel_futures=True)
