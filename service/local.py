"""The service without HTTP: opens a store nobody holds, catches up, answers or fits, and keeps the answers in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calibrate.conformal.wrap import Calibrated
from predictors.contexts import Context
from predictors.explained import Stratum, explained
from service.lineup import Lineup
from service.refit import NEWEST, Origin, newest_saved
from service.settings import Settings, models_folder
from service.upkeep import Upkeep
from telemetry import asof
from telemetry.errors import NoEvidence, UnknownId
from telemetry.recorder.ids import clock_id
from telemetry.store.file import Store
from telemetry.store.reader import open_reader

ATTEMPTS, CONTEXTS = 20_000, 500
"""Newest attempts, and distinct contexts among them, whose strata are told of."""


@dataclass(frozen=True)
class Told:
    """The newest saved model, and how it weighs its experts."""

    model_id: str
    family: str
    fit_commit: int
    served_from: int
    n_observations: int
    forest: bool
    strata: list[Stratum]


@contextmanager
def local_lineup(path: Path) -> Iterator[Lineup]:
    """A lineup true to the store at `path`; StoreHeld if another process has it."""
    with _kept(path) as (lineup, upkeep):
        upkeep.first_fit()
        yield lineup


def fitted_now(path: Path) -> Told:
    """Fits on all that the store at `path` knows, lets the fit take over, and tells of it."""
    with _kept(path) as (_, upkeep):
        upkeep.fit_now()
    return saved_model(path)


def saved_model(path: Path) -> Told:
    """Tells of the newest saved model of the store at `path`, which is only read; NoEvidence where there is none."""
    _there(path)
    with open_reader(path) as reader:
        newest = newest_saved(reader, models_folder(path))
        if newest is None:
            raise NoEvidence("model", "none saved", "send completed attempts, or import recorded ones; then run `phasecast fit`")
        row, model = newest
        strata: list[Stratum] = []
        if isinstance(model, Calibrated):
            contexts = [Context.of(known) for known in asof.recent_contexts(reader, NEWEST, ATTEMPTS, CONTEXTS).to_pylist()]
            strata = explained(model.inner, [(context, phase) for context in contexts for phase in model.phases])
        grown = isinstance(model, Calibrated) and model.inner.forest is not None
    return Told(row.model_id, row.family, row.fit_commit, Origin.of(row).served_from, row.n_observations, grown, strata)


@contextmanager
def _kept(path: Path) -> Iterator[tuple[Lineup, Upkeep]]:
    """A store opened for as long as it takes, with its upkeep."""
    _there(path)
    store = Store.open(path)
    try:
        lineup = Lineup(clock_id())
        upkeep = Upkeep(store, lineup, Settings(store=path))
        try:
            yield lineup, upkeep
        finally:
            upkeep.stop()
    finally:
        store.close()


def _there(path: Path) -> None:
    if not path.exists():
        raise UnknownId("store", str(path), "no such file; give --store, or start `phasecast serve`")
