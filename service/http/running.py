"""What the routes share, held by the app: lineup, settings and counters where questions are answered, and the store besides."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import Request

from service.http.bodies import Bodies
from service.http.kept import Kept
from service.http.metrics import Counts, Metrics
from service.lineup import Lineup
from service.measuring import Calibrations
from service.settings import Settings
from telemetry.store.file import Store
from telemetry.tokens import Keyring


@dataclass(frozen=True, kw_only=True)
class Answering:
    """The parts that a route which answers questions may use, in a process that owns no store as well."""

    lineup: Lineup
    settings: Settings
    metrics: Counts
    bodies: Bodies = field(default_factory=Bodies)


@dataclass(frozen=True, kw_only=True)
class Running(Answering):
    """The parts of the process that owns the store."""

    metrics: Metrics
    store: Store
    keyring: Keyring
    calibrations: Calibrations
    kept: Kept = field(default_factory=Kept)


def answering(request: Request) -> Answering:
    """What stands behind a question."""
    found: Answering = request.app.state.running
    return found


def running(request: Request) -> Running:
    """The running service behind a request."""
    found: Running = request.app.state.running
    return found
