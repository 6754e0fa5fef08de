"""The service without HTTP: opens a store nobody holds, catches up, answers, and keeps the answers in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.lineup import Lineup
from service.settings import Settings
from service.upkeep import Upkeep
from telemetry.errors import UnknownId
from telemetry.recorder.ids import clock_id
from telemetry.store.file import Store


@contextmanager
def local_lineup(path: Path) -> Iterator[Lineup]:
    """A lineup true to the store at `path`; StoreHeld if another process has it."""
    if not path.exists():
        raise UnknownId("store", str(path), "no such file; give --store, or start `phasecast serve`")
    store = Store.open(path)
    try:
        lineup = Lineup(clock_id())
        upkeep = Upkeep(store, lineup, Settings(store=path))
        try:
            upkeep.first_fit()
            yield lineup
        finally:
            upkeep.stop()
    finally:
        store.close()
