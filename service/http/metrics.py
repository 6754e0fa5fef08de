"""What Prometheus may scrape: counts and times of answers as they are given, and the state of the service when it is asked."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.lineup import Lineup
from telemetry import asof
from telemetry.errors import StoreError
from telemetry.store.file import Store
from telemetry.words import Status

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RECENT = 1_000
"""Answers (count) whose share with status `calibrated` is told."""
BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Counts(Protocol):
    """Counts of what a process answers."""

    def counted(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one request."""

    def answered(self, kind: str, statuses: Iterable[str]) -> None:
        """Count answers to one kind of question by their statuses."""


class Metrics:
    """The counters of one serving process, in a registry of its own; safe from any thread."""

    def __init__(self, store: Store, lineup: Lineup) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside each, of when it was first counted, tells nobody anything
        self.registry = CollectorRegistry()
        self._requests = Histogram(
            "phasecast_http_request_duration_seconds",
            "From the first byte of a request's head to the last of its answer, s.",
            ("method", "route", "status"),
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self._answers = Counter(
            "phasecast_answers_total",
            "Answers given, by kind of question and status.",
            ("kind", "status"),
            registry=self.registry,
        )
        self._ingested = Counter(
            "phasecast_ingest_items_total",
            "Items sent to the API: rows of a table, or spans, by what became of them.",
            ("kind", "result"),
            registry=self.registry,
        )
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self.registry.register(_Now(store, lineup, self))
        ProcessCollector(registry=self.registry)

    def counted(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one request."""
        self._requests.labels(method, route, str(status)).observe(took_s)

    def answered(self, kind: str, statuses: Iterable[str]) -> None:
        """Count answers to one kind of question by their statuses."""
        tally = Tally(statuses)
        for status, count in tally.items():
            self._answers.labels(kind, status).inc(count)
        self._recent.extend(status == Status.CALIBRATED for status in tally.elements())

    def ingested(self, kind: str, results: Iterable[str]) -> None:
        """Count items of a batch by what became of them."""
        for result, count in Tally(results).items():
            self._ingested.labels(kind, result).inc(count)

    def watch_workers(self, alive: Callable[[], float], restarts: Callable[[], float]) -> None:
        """Show how many workers there are, and how many had to be started again."""
        self.registry.register(_Workers(alive, restarts))

    @property
    def share_calibrated(self) -> float:
        """Share of the newest RECENT answers of this process that had status `calibrated`; 0 before the first."""
        recent = list(self._recent)
        return sum(recent) / max(1, len(recent))

    def text(self) -> bytes:
        """Everything in the text format of Prometheus."""
        return generate_latest(self.registry)


class _Workers(Collector):
    """The processes that answer for this one."""

    def __init__(self, alive: Callable[[], float], restarts: Callable[[], float]) -> None:
        self._alive, self._restarts = alive, restarts

    def collect(self) -> Iterator[Metric]:
        """A gauge and a count."""
        yield GaugeMetricFamily("phasecast_workers", "Processes that answer questions (count).", self._alive())
        yield CounterMetricFamily("phasecast_worker_restarts", "Workers that died and were replaced.", self._restarts())


class _Now(Collector):
    """State read when it is scraped, so that it is never older than the scrape."""

    def __init__(self, store: Store, lineup: Lineup, metrics: Metrics) -> None:
        self._store, self._lineup, self._metrics = store, lineup, metrics
        self._fitted: tuple[str, int] = ("", 0)

    def describe(self) -> Iterator[Metric]:
        """Nothing: a look at names must not read the store."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """The gauges."""
        lineup, last_commit = self._lineup, self._store.last_commit
        gauges = (
            ("ready", "1 once questions can be answered.", float(lineup.serving is not None)),
            ("troubled", "1 while the last round of upkeep failed.", float(lineup.trouble is not None)),
            ("answers_calibrated_ratio", "Share of the newest answers that were calibrated.", self._metrics.share_calibrated),
            ("ledger_pending_rows", "Answers given and not yet on disk (count).", lineup.answers_pending),
            ("store_pending_rows", "Rows waiting for the writer (count).", self._store.pending_rows),
            ("last_commit_number", "The newest commit.", last_commit),
            ("upkeep_lag_commits", "Commits (count) that upkeep has not looked at.", max(0, last_commit - lineup.derived_to)),
            ("last_fit_seconds", "How long the last background fit took, s.", lineup.fits.last_s if lineup.fits.n else None),
            ("challenged_questions", "Questions (count) that challengers answered.", lineup.challenged.asked),
            (
                "unchallenged_questions",
                "Questions (count) not put to challengers: too many came at once.",
                lineup.challenged.dropped,
            ),
            ("running_attempts", "Attempts (count) that have not ended.", len(lineup.running)),
            ("model_age_seconds", "Since the serving model was fitted, s; it learns on between fits.", self._model_age_s()),
        )
        yield CounterMetricFamily("phasecast_fits", "Background fits since the start (count).", lineup.fits.n)
        yield CounterMetricFamily("phasecast_fit_seconds", "Time they took together, s.", lineup.fits.total_s)
        for name, text, value in gauges:
            if value is not None:
                yield GaugeMetricFamily(f"phasecast_{name}", text, value)

    def _model_age_s(self) -> float | None:
        """Age of the fit of the calibrated model, None where there is none or the store cannot be read now."""
        serving = self._lineup.calibrated
        if serving is None:
            return None
        if self._fitted[0] != serving.model_id:
            try:
                with self._store.reader() as reader:
                    rows = asof.models(reader, self._store.last_commit)
            except StoreError:
                return None
            self._fitted = next(((row.model_id, row.fitted_ns) for row in rows if row.model_id == serving.model_id), ("", 0))
        return max(0.0, (time.time_ns() - self._fitted[1]) / 1e9) if self._fitted[1] else None
