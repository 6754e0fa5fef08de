"""A living service in two forms: in this process, driven round by round, and as a real server over HTTP."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from predictors.synthetic import Run
from service.lineup import Lineup
from service.upkeep import Upkeep
from telemetry.store.batch import Batch
from telemetry.store.file import Store


@dataclass
class Living:
    """A store with its upkeep, driven round by round."""

    store: Store
    lineup: Lineup
    upkeep: Upkeep

    def send(self, runs: Sequence[Run]) -> None:
        """Commit attempts with all their events."""
        self.store.write(Batch(tuple(row for run in runs for row in (run.attempt, *run.events))))

    def settle(self) -> None:
        """Rounds until nothing changes any more and the last fit has taken over."""
        while True:
            before = self.store.last_commit
            self.upkeep.tick()
            running = self.upkeep._refitter._running
            if running is not None:
                running.exception(timeout=60)
            elif self.store.last_commit == before:
                return


@dataclass(frozen=True)
class Served:
    """A real server."""

    url: str
    store: Path
    process: subprocess.Popen[bytes]


def until(holds: Callable[[], object], patience_s: float = 30.0) -> None:
    """Wait until something holds that another thread or process brings about."""
    give_up_at = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.02)
