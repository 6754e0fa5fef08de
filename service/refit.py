"""Fits in the background, and brings what serves up to date: state at c = fold(state at f, changes f+1 .. c).

Experts fitted as of a commit take over from the experts of what serves, and all else that it has learned goes on. The new value
is written whole, as of the commit at which they took over, before it answers anything: a kill in between leaves the one before.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from calibrate.conformal import saved
from calibrate.conformal.wrap import Calibrated
from calibrate.hosts.versions import rates_of_hosts
from predictors import hazards
from predictors.experts.forest import Forest
from predictors.frames import frame_of
from predictors.hazards import HierarchicalHazards
from predictors.model import Change, Model, changes_of
from predictors.resources import NONE, Rates
from service.engine import Serving
from service.fitting import Apart, History, Known, founded, known_outcomes, refitted
from service.lineup import Fits
from service.newcomers import Newcomers
from service.settings import models_folder
from telemetry import asof
from telemetry.errors import DamagedStore
from telemetry.ledger import ModelFile
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import Reader
from telemetry.words import Ended

log = logging.getLogger(__name__)
M = TypeVar("M", bound=Model)
KEPT_FILES = 3
NEWEST = 2**62
"""A commit past all there are."""
GROWTH = 0.1
"""Growth of what is known, as a share of it, after which a fit is due at once."""
APART_FROM = 2_000
"""Observations (count) from which on a fit takes longer than a process of its own takes to begin."""
WAITED_FOR = 5_000
"""Asked rows whose end is waited for past a fit: of some phases the end is never told, and they must not fill memory."""
RETRY_S = 5.0
"""Pause after a fit that failed."""


@dataclass(frozen=True)
class Origin:
    """How a served model came to be: enough to make it again.

    Experts were fitted as of `fit_commit`, for the model `parent` to go on with (None: founded on history); `grew` tells whether
    a forest was grown on the parent's lessons as of then. The file holds the model as of `served_from`. `grown_at` counts the
    outcomes known when its forest was grown.
    """

    fit_commit: int
    parent: str | None
    grew: bool
    grown_at: int
    served_from: int = 0

    @classmethod
    def of(cls, row: ModelFile) -> Origin:
        """What a model's row tells of it. The model of record alone, as earlier programs served it, was fitted and no more."""
        told = json.loads(row.settings)
        if row.family != saved.FAMILY:
            return cls(row.fit_commit, None, grew=False, grown_at=0, served_from=row.fit_commit)
        return cls(row.fit_commit, told["parent"], told["grew"], told["grown_at"], told["served_from"])

    def settings(self, fit: hazards.FitSettings) -> dict[str, object]:
        """What goes into the model's row."""
        told = asdict(self)
        del told["fit_commit"]
        return asdict(fit) | told


@dataclass(frozen=True)
class Fit:
    """Experts fitted in the background: a model of record and perhaps a forest, or a whole model founded on history."""

    origin: Origin
    record: HierarchicalHazards | None
    forest: Forest | None = None
    whole: Calibrated | None = None


@dataclass(frozen=True)
class Saved:
    """A model with its file written and its row committed."""

    model: Calibrated
    row: ModelFile


def fit_as_of(reader: Reader, commit: int, *, rated: bool = True) -> HierarchicalHazards:
    """The model of record, fitted on the outcomes, and where `rated` the rates of hosts, that were known at the commit."""
    rates = rates_as_of(reader, commit) if rated else NONE
    return hazards.fit(frame_of(asof.observations(reader, commit)), commit, hazards.FitSettings(), rates)


def rates_as_of(reader: Reader, commit: int) -> Rates:
    """Measured rates of hosts, as known at the commit."""
    return rates_of_hosts(asof.profiles(reader, commit))


def founded_as_of(reader: Reader, commit: int) -> Calibrated:
    """The calibrated model, founded on what was known at the commit."""
    return founded(history_as_of(reader, commit))


def history_as_of(reader: Reader, commit: int) -> History:
    """All that was known at the commit of observations and, since when, of hosts' rates."""
    rates: list[tuple[int, Rates]] = []
    since = asof.newest_profile(reader, commit)
    while since > 0:
        rates.append((since, rates_as_of(reader, since)))
        since = asof.newest_profile(reader, since - 1)
    return History(commit, asof.observations(reader, commit), tuple(rates))


def fit(reader: Reader, commit: int, before: Serving | None, apart: Apart | None = None) -> Fit | None:
    """Fit as of `commit`, at which `before` is what is served; None while nothing has completed. Much is fitted `apart`."""
    if before is None or not isinstance(before.model, Calibrated):
        history = history_as_of(reader, commit)
        whole = founded(history) if apart is None or _few(history.observations) else apart.founded(history)
        if whole is None or not whole.phases:
            return None
        grew = whole.inner.forest is not None
        return Fit(Origin(commit, None, grew=grew, grown_at=known_outcomes(whole) if grew else 0), None, whole=whole)
    last, lessons = origin_of(reader, before.model_id), before.model.inner.lessons.arrays()
    known = Known(commit, asof.observations(reader, commit), rates_as_of(reader, commit), last.grown_at, *lessons)
    made = refitted(known) if apart is None or _few(known.observations) else apart.refitted(known)
    grown_at = last.grown_at if made.forest is None else known_outcomes(made.record)
    return Fit(Origin(commit, before.model_id, made.forest is not None, grown_at), made.record, made.forest)


def _few(observations: pa.Table) -> bool:
    return bool(observations.num_rows < APART_FROM)


def origin_of(reader: Reader, model_id: str) -> Origin:
    """Where a served model came from."""
    return Origin.of(next(row for row in asof.models(reader, NEWEST) if row.model_id == model_id))


def succeeded(made: Fit, before: Serving | None, reader: Reader, upto: int) -> Calibrated | None:
    """The model that goes on at `upto` with the experts of a fit; None where another one than it was made for serves by now."""
    if made.whole is not None:
        return caught_up(made.whole, reader, upto)
    if before is None or before.model_id != made.origin.parent or made.record is None:
        return None
    assert isinstance(before.model, Calibrated)
    return joined(before.model, caught_up(made.record, reader, upto), made.forest)


def joined(before: Calibrated, record: HierarchicalHazards, forest: Forest | None) -> Calibrated:
    """What `before` has learned over experts fitted anew; of the rows whose end it waits for, the newest."""
    model = before.refounded(record, forest)
    beyond = len(model.inner.pending) - WAITED_FOR
    if beyond <= 0:
        return model
    newest = dict(islice(model.inner.pending.items(), beyond, None))
    return replace(model, inner=replace(model.inner, pending=newest), curves={})


def save(store: Store, model: Calibrated, origin: Origin) -> Saved:
    """Write the model's file and commit its row: from then on it can be served, and a restart takes it up."""
    folder = models_folder(store.path)
    row = saved.save(model, folder, settings=origin.settings(model.inner.record.settings), fitted_ns=time.time_ns())
    store.write(Batch((row,)))
    with store.reader() as reader:
        _keep_newest(folder, [known.file_name for known in asof.models(reader, store.last_commit)])
    return Saved(model, row)


def _keep_newest(folder: Path, names: Sequence[str]) -> None:
    """Remove files of older fits, `names` being newest first: a fit can be made again, and one in reserve serves if it must."""
    for name in names[KEPT_FILES:]:
        if name not in names[:KEPT_FILES]:
            (folder / name).unlink(missing_ok=True)


def caught_up(model: M, reader: Reader, upto: int) -> M:
    """Fold what became known since the model's commit, one commit at a time; the model itself if nothing did."""
    return folded(model, changes_of(asof.changes(reader, model.commit, upto))) if upto > model.commit else model


def folded(model: M, changes: Sequence[Change], going: Callable[[], bool] = lambda: True) -> M:
    """The model with changes, in their order, folded in commit by commit, as long as it is `going`.

    The step is the commit, whatever the rounds of upkeep were: only so does a replay, or another process, come to the same state.
    """
    for commit, together in groupby(changes, key=lambda change: change.known_at):
        if not going():
            break
        model = model.after(list(together), commit)  # type: ignore[assignment]  # a model becomes one of its own kind
    return model


def restored(store: Store, reader: Reader, upto: int) -> Serving | None:
    """The newest model of the store that is undamaged, brought up to `upto`."""
    newest = newest_saved(reader, models_folder(store.path))
    return None if newest is None else Serving(caught_up(newest[1], reader, upto), newest[0].model_id)


def newest_saved(reader: Reader, folder: Path) -> tuple[ModelFile, Calibrated | HierarchicalHazards] | None:
    """The newest undamaged model as it was saved, and its row; damaged files are told and passed over.

    So are models from before what retention removed, since what went from their evidence is not known any more.
    """
    complete_from = asof.complete_from(reader)
    for row in asof.models(reader, NEWEST):
        if Origin.of(row).served_from < complete_from:
            continue
        try:
            return row, saved.load(folder / row.file_name, row.sha256)
        except DamagedStore as error:
            log.warning("model %s not used: %s", row.model_id, error)
    return None


def nicer(by: int) -> None:
    """Make the thread that calls so much nicer than the process's first; Linux knows niceness by thread."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, os.getpid()) + by)


class Refitter:
    """One background fit at a time, and its file; `share` is the part of the time that fits not called for by growth may take.

    `fits` counts them. What is made here is made on a thread that is `niceness` nicer than the process: only where no other
    thread of it answers, since one that has to wait for a processor may hold what the others need.
    """

    def __init__(self, store: Store, least_outcomes: int, share: float, fits: Fits, niceness: int = 0) -> None:
        self._store, self._fits = store, fits
        self._least, self._share = least_outcomes, share
        self._started_s, self._rest_until_s, self._retry_at_s = 0.0, 0.0, 0.0
        self.trouble: str | None = None
        """What stopped the last fit, None while all is well."""
        self._pool = ThreadPoolExecutor(1, "phasecast-fit", nicer, (niceness,))
        self._apart: Apart | None = None
        self._running: Future[Fit | Saved | None] | None = None
        self._total = 0
        self._since_fit = 0
        self._newcomers = Newcomers()

    def go_apart(self) -> None:
        """Make larger fits in a process of their own from now on: the ones of this process answer, and are not to wait."""
        self._apart = Apart()

    def learned(self, n_outcomes: int) -> None:
        """Count outcomes learned, towards the next fit."""
        self._total += n_outcomes
        self._since_fit += n_outcomes

    def met(self, changes: Sequence[Change], before: Calibrated) -> None:
        """Count, of changes that the model `before` does not know yet, outcomes of hosts that the last fit knew none of.

        What took no time at all counts for nothing: no fit would place the host by it.
        """
        for change in changes:
            if change.sign > 0 and change.ended == Ended.COMPLETED and change.duration_s > 0.0:
                self._newcomers.ended(change.context, change.phase, before.inner.histories.means)

    def maybe_start(self, commit: int, serving: Serving | None, newest_profile: int = 0) -> None:
        """Start a fit as of `commit`, at which `serving` serves, if one is due: the first at once, later ones by growth.

        A profile that came after the last fit, at commit `newest_profile`, makes one due as well: only fits know of rates.

        While little is known a fit is due at every doubling: what one or two outcomes say of scale is soon outgrown. Later on
        it is due when outcomes have grown by a tenth, or as often as a small share of the time allows: work of a new kind is
        placed by fits alone. So are hosts that the last fit had no outcome of, within that share however many they are.
        """
        now_s, fitted = time.monotonic(), self._total - self._since_fit
        first = serving is None or not isinstance(serving.model, Calibrated)
        least = 1 if first else max(1, min(self._least, fitted))
        grown = self._since_fit >= max(least, GROWTH * self._total)
        rested = now_s >= self._rest_until_s and (self._since_fit >= least or self._newcomers.due)
        profiled = serving is not None and serving.model.fit_commit < newest_profile
        if self._running is None and (profiled or grown or rested) and now_s >= self._retry_at_s:
            self.start(commit, serving)

    def start(self, commit: int, serving: Serving | None) -> None:
        """Start a fit as of `commit`, due or not; nothing may be under way."""
        self._since_fit = 0
        self._newcomers.fitted()
        self._started_s = time.monotonic()
        self._running = self._pool.submit(self._fit, commit, serving)

    def save(self, model: Calibrated, origin: Origin) -> None:
        """Write the model on the thread of fits; `finished` then has it."""
        self._running = self._pool.submit(save, self._store, model, origin)

    def _fit(self, commit: int, serving: Serving | None) -> Fit | None:
        began_s = time.monotonic()
        with self._store.reader() as reader:
            made = fit(reader, commit, serving, self._apart)
        self._fits.note(time.monotonic() - began_s)
        return made

    def finished(self) -> Fit | Saved | None:
        """The fit, or the saved model, that is ready since last asked; an error is logged, and the model before serves on."""
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

    def wait(self) -> bool:
        """Wait for what is under way; `finished` then has it. False where nothing is."""
        if self._running is not None:
            wait([self._running])
        return self._running is not None

    def close(self) -> None:
        """End a fit that is made apart; wait for all else that is under way: a file and its row belong together."""
        if self._apart is not None:
            self._apart.end()
        self._pool.shutdown(wait=True, cancel_futures=True)
