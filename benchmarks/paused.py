"""`python -m benchmarks.paused STORE`: the API with learning put off, to tell what taking events in costs by itself."""

from __future__ import annotations

import sys
from pathlib import Path

from service.http.app import serve
from service.settings import Settings

NEVER_S = 1e6

if __name__ == "__main__":
    serve(Settings(store=Path(sys.argv[1]), port=0, tick_s=NEVER_S), lambda url: print(f"served at {url}", flush=True))  # noqa: T201
