"""How a process of the API runs: the same for the one that owns the store and for those that only answer."""

from __future__ import annotations

import gc
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

from service.http.heads import BoundedHeads

GRACE_S = 10
COLLECT_AFTER = (500_000, 20, 50)
"""Thresholds of the garbage collector. Requests make and drop objects by the thousand, next to none in cycles: at Python's own
thresholds a third of the time in which events were taken in went to looking for them. While learning goes on, every look keeps
all answers waiting, for tens of milliseconds; at a tenth of the first threshold one in a hundred waited for that."""
TURN_S = 0.0005
"""How long a thread that learns may go on while one that answers wants to: Python's own 5 ms are longer than an answer takes."""


def quicken() -> None:
    """Set this process up to answer while it learns."""
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(TURN_S)


def configured(app: FastAPI, **further: Any) -> uvicorn.Config:
    """The server's configuration; `further` are options of uvicorn."""
    return uvicorn.Config(
        app,
        http=BoundedHeads,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
        **further,
    )
