"""Fits in the background and brings the fitted model up to date: state at c = fold(fit as of f, changes f+1 .. c)."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import groupby

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
    row = modelfile.save(model, models_folder(store.path), fitted_ns=time.time_ns())
    store.write(Batch((row,)))
    return Fitted(model, row)


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
    """One background fit at a time."""

    def __init__(self, store: Store, least_outcomes: int, share: float) -> None:
        self._store = store
        self._least, self._share = least_outcomes, share
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

        While little is known a fit is due at every doubling: what one or two outcomes say of scale is soon outgrown.
        """
        fitted = self._total - self._since_fit
        due = 1 if first else max(min(self._least, fitted), self._share * self._total)
        if self._running is None and self._since_fit >= due:
            self._since_fit = 0
            self._running = self._pool.submit(fit_and_save, self._store, commit)

    def finished(self) -> Fitted | None:
        """The fit that has ended since last asked; an error in it is logged, and the model before it serves on."""
        if self._running is None or not self._running.done():
            return None
        future, self._running = self._running, None
        error = future.exception()
        if error is not None:
            log.error("background fit failed, the model before it serves on", exc_info=error)
            return None
        return future.result()

    def wait(self) -> None:
        """Wait for a fit under way; `finished` then has it."""
        if self._running is not None:
            wait([self._running])

    def close(self) -> None:
        """Wait for a fit under way: its file and row belong together."""
        self._pool.shutdown(wait=True, cancel_futures=True)
