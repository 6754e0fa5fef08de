"""Samples of this host's resources, kept in the store at intervals: a thread beside the API that nothing waits for."""

from __future__ import annotations

import logging
import threading

from telemetry.errors import PhasecastError
from telemetry.sampler import Sampler
from telemetry.store.batch import Batch
from telemetry.store.file import Store

log = logging.getLogger(__name__)


class Sampling:
    """Takes a sample every `every_s` seconds from `start` to `stop`, and leaves out those the store has no room for."""

    def __init__(self, store: Store, sampler: Sampler, every_s: float) -> None:
        self._store, self._sampler, self._every_s = store, sampler, every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="phasecast-sampling", daemon=True)

    def start(self) -> None:
        """Take the first sample, and go on."""
        self._thread.start()

    def stop(self) -> None:
        """End after the sample under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self) -> None:
        """Commit one sample of the host and of each device."""
        self._store.write(Batch(tuple(self._sampler.sample())))

    def _run(self) -> None:
        while True:
            try:
                self.take()
            except PhasecastError as error:
                log.warning("a sample of resources was not kept: %s", error)
            if self._stopping.wait(self._every_s):
                return
