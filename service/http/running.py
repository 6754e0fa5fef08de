"""What the routes share: the store, the lineup, the settings, counters and tokens, held by the app."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import Request

from service.http.bodies import Bodies
from service.http.metrics import Metrics
from service.lineup import Lineup
from service.measuring import Calibrations
from service.settings import Settings
from telemetry.store.file import Store
from telemetry.tokens import Keyring


@dataclass(frozen=True)
class Running:
    """The parts of a running service that a route may use."""

    store: Store
    lineup: Lineup
    settings: Settings
    metrics: Metrics
    keyring: Keyring
    calibrations: Calibrations
    bodies: Bodies = field(default_factory=Bodies)


def running(request: Request) -> Running:
    """The running service behind a request."""
    found: Running = request.app.state.running
    return found
